//! Continues a text, letter by letter, with a transformer that keeps its keys and values.
//!
//! `cargo run -p generate` continues this file. `cargo run -p generate -- FILE START` continues
//! another one, and what is to come after it. Which letter comes next the model knows from what came
//! after the same ones before: `models/lookup.py` tells how.
//!
//! What the model has read it keeps: each run stores the keys and values of the letters that are new
//! behind those of the letters so far, and reads them where they are. So the text goes through it
//! once, 64 letters at a time, and each letter of the answer is a run of one.

use std::error::Error;
use std::io::{self, Write};

mod lookup {
    niello_runtime::include_model!("lookup");
}

use lookup::{Inputs, Model, Sizes};

/// Letters that the model tells apart: the end of a line, and those from the space on.
const LETTERS: usize = 96;

/// How many letters an answer has.
const ANSWER: usize = 240;

/// The number of a letter; all that the model does not know are spaces to it.
fn number(letter: char) -> i64 {
    match letter {
        '\n' => 0,
        ' '..='~' => i64::from(u32::from(letter) - 31),
        _ => 1,
    }
}

fn letter(number: i64) -> char {
    match u8::try_from(number) {
        Ok(number @ 1..96) => char::from(number + 31),
        _ => '\n',
    }
}

/// A text that the model has read.
struct Reader {
    model: Model,
    /// Letters so far.
    past: usize,
}

impl Reader {
    fn new() -> Reader {
        Reader { model: Model::new(), past: 0 }
    }

    /// Reads on; returns the letter that is most likely to come next.
    fn read(&mut self, ids: &[i64]) -> Result<i64, Box<dyn Error>> {
        let mut next = 0;
        for ids in ids.chunks(Sizes::GREATEST.seq) {
            let sizes = Sizes { past: self.past, seq: ids.len() };
            let scores = self.model.run(&Inputs { ids, sizes })?.scores;
            self.past += ids.len();
            let last = &scores[scores.len() - LETTERS..];
            let best = (0..).zip(last).max_by(|(_, a), (_, b)| a.total_cmp(b));
            next = best.map_or(0, |(number, _)| number);
        }
        Ok(next)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (text, start) = match arguments.next() {
        Some(path) => (std::fs::read_to_string(path)?, arguments.next().unwrap_or_default()),
        None => (include_str!("main.rs").to_owned(), "\nfn start(".to_owned()),
    };
    let ids: Vec<i64> = text.chars().chain(start.chars()).map(number).collect();
    // Of a text that is too long, the end counts.
    let room = Sizes::GREATEST.past - ANSWER;
    let mut reader = Reader::new();
    let mut next = reader.read(&ids[ids.len().saturating_sub(room)..])?;
    let mut out = io::stdout().lock();
    write!(out, "{start}")?;
    for _ in 0..ANSWER {
        write!(out, "{}", letter(next))?;
        out.flush()?;
        next = reader.read(&[next])?;
    }
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The letter that the model is made to find: each place that comes after some of the last four
    /// letters votes for its own, those after more and later ones with more weight.
    fn expected(ids: &[i64]) -> i64 {
        let last = ids.len() - 1;
        let score = |place: usize| -> f64 {
            let weights = [24.0, 12.0, 6.0, 3.0].into_iter().enumerate();
            let agreeing = weights
                .filter(|&(back, _)| place > back && last >= back)
                .filter(|&(back, _)| ids[place - 1 - back] == ids[last - back]);
            agreeing.map(|(_, weight)| weight).sum::<f64>() - 0.05 * (last - place) as f64
        };
        let most = (0..ids.len()).map(score).fold(f64::NEG_INFINITY, f64::max);
        let mut votes = [0.0; LETTERS];
        for (place, &id) in ids.iter().enumerate() {
            votes[usize::try_from(id).unwrap()] += (score(place) - most).exp();
        }
        let best = (0..).zip(votes).max_by(|(_, a), (_, b)| a.total_cmp(b));
        best.unwrap().0
    }

    fn source() -> Vec<i64> {
        include_str!("main.rs").chars().take(1500).map(number).collect()
    }

    #[test]
    fn the_answer_is_what_came_after_the_same_letters() {
        let mut ids = source();
        let mut reader = Reader::new();
        let mut next = reader.read(&ids).unwrap();
        for place in 0..100 {
            assert_eq!(next, expected(&ids), "letter {place}");
            ids.push(next);
            next = reader.read(&[next]).unwrap();
        }
    }

    #[test]
    fn a_text_can_be_gone_back_in() {
        let ids = source();
        let mut reader = Reader::new();
        reader.read(&ids[..200]).unwrap();
        let next = reader.read(&ids[200..205]).unwrap();
        reader.read(&ids[300..400]).unwrap();
        reader.past = 200;
        assert_eq!(reader.read(&ids[200..205]).unwrap(), next);
        let mut other = Reader::new();
        assert_eq!(other.read(&ids[..205]).unwrap(), next);
    }

    #[test]
    fn more_than_there_is_room_for_is_an_error() {
        let mut reader = Reader::new();
        reader.past = 4096;
        let error = reader.read(&[1]).unwrap_err().to_string();
        assert!(error.contains("past"), "{error}");
    }
}
