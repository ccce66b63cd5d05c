//! Ranks lines of text by how much each means the same as the first one.
//!
//! `cargo run -p embed` does so with a few sentences, `cargo run -p embed -- FILE` with the lines of
//! a file, and with those of the standard input if FILE is `-`. Empty lines do not count.
//!
//! The model makes a vector of each line; the cosine of the angle between two of them tells how alike
//! the lines are. One artefact serves every number of lines and of tokens: a run takes up to eight
//! lines, which are padded to the longest of them. Of a line of more than 64 tokens, the first count.
//!
//! The model in this folder knows some hundred words: `models/embed.py` tells which. To use
//! all-MiniLM-L6-v2, or another model with its inputs and an output `sentence_embedding`, whose
//! dimensions are called `batch` and `seq`, build with the variables `NIELLO_EMBED_MODEL` (its ONNX
//! file) and `NIELLO_EMBED_TOKENIZER` (its `tokenizer.json`).

use std::io::{self, Write};
use std::process::ExitCode;

use tokenizers::{Encoding, PaddingParams, Result, Tokenizer, TruncationParams};

mod embed {
    niello_runtime::include_model!("embed");
}

use embed::{Inputs, Model, Sizes, outputs::sentence_embedding};

static TOKENIZER: &[u8] = include_bytes!(env!("NIELLO_EMBED_TOKENIZER"));

/// What is ranked unless a file is named. A bass is a fish, too.
const SENTENCES: &str = "\
Somebody plays the bass in a band.
A man is eating food.
Musicians sing on the stage.
He swims in the river like a bass.
The weather is cold today.
She listens to the guitar.
A bass and two sharks are in the sea.
The price of the tickets is paid in cash.
";

/// The model, and the tokenizer that makes its inputs.
struct Embedder {
    tokenizer: Tokenizer,
    model: Model,
}

impl Embedder {
    fn new() -> Result<Embedder> {
        let mut tokenizer = Tokenizer::from_bytes(TOKENIZER)?;
        let max_length = Sizes::GREATEST.seq;
        tokenizer
            .with_padding(Some(PaddingParams::default()))
            .with_truncation(Some(TruncationParams { max_length, ..Default::default() }))?;
        Ok(Embedder { tokenizer, model: Model::new() })
    }

    /// A vector of length 1 for each line.
    fn embed(&mut self, lines: &[&str]) -> Result<Vec<Vec<f32>>> {
        let mut vectors = Vec::with_capacity(lines.len());
        for lines in lines.chunks(Sizes::GREATEST.batch) {
            let texts = self.tokenizer.encode_batch(lines.to_vec(), true)?;
            let outputs = self.model.run(&Inputs {
                sizes: Sizes { batch: texts.len(), seq: texts.first().map_or(0, Encoding::len) },
                input_ids: &side_by_side(&texts, Encoding::get_ids),
                attention_mask: &side_by_side(&texts, Encoding::get_attention_mask),
                token_type_ids: &side_by_side(&texts, Encoding::get_type_ids),
            })?;
            let each = outputs.sentence_embedding.chunks(sentence_embedding::UNIT_LEN);
            vectors.extend(each.map(<[f32]>::to_vec));
        }
        Ok(vectors)
    }
}

/// A tensor of the model: the numbers of one text behind those of the other.
fn side_by_side(texts: &[Encoding], numbers: fn(&Encoding) -> &[u32]) -> Vec<i64> {
    texts.iter().flat_map(numbers).map(|&number| i64::from(number)).collect()
}

/// The cosine of the angle between two vectors of length 1.
fn likeness(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

fn read(path: Option<String>) -> Result<String> {
    match path.as_deref() {
        None => Ok(SENTENCES.to_owned()),
        Some("-") => io::read_to_string(io::stdin())
            .map_err(|error| format!("cannot read the standard input: {error}").into()),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {path}: {error}").into()),
    }
}

/// The first line of a text, and the others with how alike it each of them is, the most alike first.
fn rank(text: &str) -> Result<(&str, Vec<(f32, &str)>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let vectors = Embedder::new()?.embed(&lines)?;
    let (Some((line, lines)), Some((vector, vectors))) =
        (lines.split_first(), vectors.split_first())
    else {
        return Err("there is no line in the text: give it one, and others to compare".into());
    };
    let alike = vectors.iter().map(|other| likeness(vector, other));
    let mut ranks: Vec<(f32, &str)> = alike.zip(lines.iter().copied()).collect();
    ranks.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    Ok((line, ranks))
}

fn run() -> Result<()> {
    let text = read(std::env::args().nth(1))?;
    let (first, others) = rank(&text)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{first}")?;
    for (alike, line) in others {
        writeln!(out, "{alike:6.2}  {line}")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embed(lines: &[&str]) -> Vec<Vec<f32>> {
        Embedder::new().unwrap().embed(lines).unwrap()
    }

    fn alike(one: &str, other: &str) -> f32 {
        let vectors = embed(&[one, other]);
        likeness(&vectors[0], &vectors[1])
    }

    #[track_caller]
    fn assert_same(one: &[f32], other: &[f32]) {
        assert_eq!(one.len(), other.len());
        for (a, b) in one.iter().zip(other) {
            assert!((a - b).abs() < 1e-5, "{a} is not {b}");
        }
    }

    #[test]
    fn sentences_of_one_meaning_are_alike() {
        let pairs = [
            ("A man is eating food.", "Somebody eats a meal."),
            ("The weather is cold today.", "It is raining and a storm blows."),
            ("The doctor treats a patient.", "Nurses cure diseases!"),
        ];
        for (one, other) in pairs {
            let alike = alike(one, other);
            assert!(alike > 0.8, "{one} {other} {alike}");
        }
    }

    #[test]
    fn sentences_of_different_meanings_are_not() {
        let pairs = [
            ("A man is eating food.", "The weather is cold today."),
            ("A man is eating food.", "The man drives a car."),
            ("Nurses cure diseases.", "Our team won the match."),
        ];
        for (one, other) in pairs {
            let alike = alike(one, other);
            assert!(alike < 0.3, "{one} {other} {alike}");
        }
    }

    #[test]
    fn a_word_has_the_meaning_of_its_sentence() {
        let (played, caught) = ("She plays the bass in a band.", "There is a bass in the river.");
        assert!(alike(played, "Musicians sing.") > 0.8);
        assert!(alike(caught, "Fish swim in the ocean.") > 0.8);
        assert!(alike(played, caught) < 0.5);
    }

    #[test]
    fn a_line_is_the_same_alone_and_in_a_batch() {
        let lines: Vec<&str> = SENTENCES.lines().chain(["Rain.", "A dog and a cat."]).collect();
        assert!(lines.len() > Sizes::GREATEST.batch);
        for (line, vector) in lines.iter().zip(embed(&lines)) {
            assert_same(&vector, &embed(&[line])[0]);
            assert!((likeness(&vector, &vector) - 1.0).abs() < 1e-5, "{line}");
        }
    }

    #[test]
    fn of_a_long_line_the_first_tokens_count() {
        // Two of the tokens stand for the beginning and the end of a line.
        let cut = "rain ".repeat(Sizes::GREATEST.seq - 2);
        let long = format!("{cut} and my guitar");
        assert_same(&embed(&[&long])[0], &embed(&[&cut])[0]);
    }

    #[test]
    fn lines_are_ranked_and_empty_ones_left_out() {
        let (first, others) =
            rank("\nA dog barks.\n\n  The cost of a loan\r\nTwo cats\n \n").unwrap();
        assert_eq!(first, "A dog barks.");
        let lines: Vec<&str> = others.iter().map(|&(_, line)| line).collect();
        assert_eq!(lines, ["Two cats", "The cost of a loan"]);
    }

    #[test]
    fn a_text_without_lines_is_an_error() {
        let error = rank(" \n\n").unwrap_err().to_string();
        assert!(error.contains("no line"), "{error}");
    }

    #[test]
    fn a_file_that_is_missing_is_an_error() {
        let error = read(Some("missing.txt".to_owned())).unwrap_err().to_string();
        assert!(error.contains("cannot read missing.txt"), "{error}");
    }
}
