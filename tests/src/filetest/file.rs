//! The parts of a filetest: header, text, expectation.

use super::Verdict;

/// The parts of a filetest.
#[derive(Debug)]
pub struct TestFile {
    /// Keys and values of the header that are still to be read.
    header: Vec<(String, String)>,
    /// Everything but the expectation.
    before: String,
    /// The text, with the header's lines blank, so that line numbers are those of the file.
    pub(super) text: String,
    /// The expectation, without the comment signs.
    pub(super) expected: String,
}

impl TestFile {
    /// Splits a file into its parts.
    ///
    /// # Errors
    ///
    /// If the file is empty, or its header is malformed.
    pub fn parse(contents: &str) -> Result<TestFile, String> {
        let lines: Vec<&str> = contents.lines().collect();
        let is_comment = |line: &str| line.starts_with(';');
        let header_end = lines.iter().position(|line| !is_comment(line)).unwrap_or(lines.len());
        let mut header = Vec::new();
        for line in &lines[..header_end] {
            let entry = line[1..].split_once(':').ok_or_else(|| {
                format!("a header line must be `; key: value`, but it is `{line}`")
            })?;
            header.push((entry.0.trim().to_owned(), entry.1.trim().to_owned()));
        }
        // The expectation is the last run of comment lines, after the text.
        let is_text = |line: &&str| !line.is_empty() && !is_comment(line);
        let Some(text_end) = lines[header_end..].iter().rposition(is_text) else {
            return Err("there is no text".to_owned());
        };
        let text_end = header_end + text_end + 1;
        let tail = &lines[text_end..];
        let expected_start = tail.iter().rposition(|line| !is_comment(line)).map_or(0, |at| at + 1);
        let stray = tail[..expected_start].iter().any(|line| is_comment(line));
        if stray && tail[expected_start..].is_empty() {
            return Err("a blank line ends the expectation at the end of the file".to_owned());
        }
        if stray {
            return Err("the expectation must be one block of comment lines".to_owned());
        }
        let mut expected = String::new();
        for line in &tail[expected_start..] {
            expected += line[1..].strip_prefix(' ').unwrap_or(&line[1..]);
            expected.push('\n');
        }
        let mut text = "\n".repeat(header_end);
        for line in &lines[header_end..text_end] {
            text += line;
            text.push('\n');
        }
        let before = lines[..text_end].iter().map(|line| format!("{line}\n")).collect();
        Ok(TestFile { header, before, text, expected })
    }

    /// Takes the value of a key that occurs at most once.
    ///
    /// # Errors
    ///
    /// If the key occurs more than once.
    pub fn take(&mut self, key: &str) -> Result<Option<String>, String> {
        let mut values = self.take_all(key);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            times => Err(format!("`; {key}:` occurs {times} times")),
        }
    }

    /// Takes the values of a key in order.
    pub fn take_all(&mut self, key: &str) -> Vec<String> {
        let (taken, left) =
            std::mem::take(&mut self.header).into_iter().partition(|(name, _)| name == key);
        self.header = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    /// Checks that all keys of the header were read.
    ///
    /// # Errors
    ///
    /// If a key was not read; the message names it.
    pub fn finish(&self) -> Result<(), String> {
        match self.header.first() {
            Some((key, _)) => Err(format!("`; {key}:` is not known, or not for this test")),
            None => Ok(()),
        }
    }

    /// Compares a result with the expectation.
    pub fn compare(&self, found: &str) -> Verdict {
        if found == self.expected {
            return Verdict::Pass;
        }
        let comments: String = found
            .lines()
            .map(|line| format!("; {line}"))
            .fold(String::new(), |text, line| text + line.trim_end() + "\n");
        let blessed = format!("{}\n{comments}", self.before);
        let difference = match self.expected.is_empty() {
            true => format!("nothing is expected; BLESS=1 would write\n{found}"),
            false => format!(
                "unexpected result; BLESS=1 would accept it\n{}",
                difference(&self.expected, found)
            ),
        };
        Verdict::Expected { blessed, difference }
    }
}

/// Both texts without their common lines at either end.
pub(super) fn difference(expected: &str, found: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[common..], &b[common..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let side = |sign: &str, lines: &[&str]| -> String {
        lines[..lines.len() - tail].iter().map(|line| format!("{sign} {line}\n")).collect()
    };
    format!("from line {}:\n{}{}", common + 1, side("-", a), side("+", b))
}
