//! Pieces of text that messages show, and the guilty part in them.

use std::ops::Range;

/// The text of a file, as spans of it count lines and columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// What the file is called in messages.
    pub name: String,
    /// The whole text; empty for files that are no text.
    pub text: String,
}

impl Source {
    /// A file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    /// The line of that number with the word that begins in that column, both counted from 1.
    /// `None` if there is no such line.
    pub fn excerpt(&self, line: u32, column: u32) -> Option<Excerpt> {
        let text = self.text.lines().nth((line as usize).checked_sub(1)?)?;
        let start = text.char_indices().nth((column as usize).saturating_sub(1));
        let start = start.map_or(text.len(), |(at, _)| at);
        let end = start + word(&text[start..]);
        Some(Excerpt {
            name: self.name.clone(),
            text: text.to_owned(),
            first_line: line,
            guilty: start..end,
        })
    }
}

/// The length in bytes of the word that a text begins with: a name with its sign, a number, or else
/// one character.
fn word(text: &str) -> usize {
    let sign = text.len() - text.trim_start_matches(['%', '@']).len();
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let end = text[sign..].find(|c| !part(c)).map_or(text.len(), |at| sign + at);
    // A dot at the end is not part of a name.
    match text[..end].trim_end_matches('.').len() {
        0 => text.chars().next().map_or(0, char::len_utf8),
        end => end,
    }
}

/// A piece of text with a guilty part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Excerpt {
    /// Where the text is from: a file, or a function.
    pub name: String,
    /// Some lines.
    pub text: String,
    /// The number of the first of them, from 1.
    pub first_line: u32,
    /// The bytes of the text that the message is about.
    pub guilty: Range<usize>,
}

impl Excerpt {
    /// Line and column of the guilty part, both counted from 1, columns in characters.
    pub fn position(&self) -> (u32, u32) {
        let before = self.text.get(..self.guilty.start).unwrap_or(&self.text);
        let start_of_line = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.first_line as usize + before.matches('\n').count();
        let column = before[start_of_line..].chars().count() + 1;
        (line as u32, column as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_the_word_at_a_place() {
        let source = Source::new("a.relay", "def @main(%x: T)\n  ä nn.relu(%y.0, 1.5);\n");
        let word = |line, column| {
            let excerpt = source.excerpt(line, column).unwrap();
            assert_eq!(excerpt.position(), (line, column));
            excerpt.text[excerpt.guilty].to_owned()
        };
        assert_eq!(word(1, 5), "@main");
        assert_eq!(word(1, 11), "%x");
        assert_eq!(
            (word(2, 3), word(2, 5), word(2, 12)),
            ("ä".into(), "nn.relu".into(), "(".into())
        );
        assert_eq!((word(2, 13), word(2, 19)), ("%y.0".into(), "1.5".into()));
        // Behind the end of the line.
        let end = source.excerpt(1, 99).unwrap();
        assert_eq!(end.guilty, 16..16);
        assert!(source.excerpt(0, 1).is_none() && source.excerpt(3, 1).is_none());
    }
}
