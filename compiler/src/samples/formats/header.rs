//! The header of a `.npy` file: a literal of a Python dictionary.

use std::fmt::Write;

/// Most dimensions that numpy has.
const MAX_RANK: usize = 64;

/// What a header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// Byte order, kind and size of an element, as in `<f4`.
    pub(super) descr: String,
    /// Whether the first index runs fastest.
    pub(super) fortran_order: bool,
    /// The extents.
    pub(super) shape: Vec<u64>,
}

impl Header {
    /// Reads the text of a header.
    ///
    /// # Errors
    ///
    /// It is no dictionary of `descr`, `fortran_order` and `shape`.
    pub(super) fn parse(text: &str) -> Result<Header, String> {
        let mut parser = Parser { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        parser.expect('{')?;
        while !parser.eat('}') {
            let key = parser.string()?;
            parser.expect(':')?;
            match key {
                "descr" => descr = Some(parser.descr()?),
                "fortran_order" => fortran_order = Some(parser.boolean()?),
                "shape" => shape = Some(parser.shape()?),
                _ => return Err(format!("the header has an unknown key `{key}`")),
            }
            if !parser.eat(',') {
                parser.expect('}')?;
                break;
            }
        }
        if !parser.rest.trim().is_empty() {
            return Err(parser.unexpected("the end"));
        }
        let missing = |key: &str| format!("the header does not say `{key}`");
        Ok(Header {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    /// The header as numpy writes it, without padding.
    pub(super) fn text(&self) -> String {
        let mut shape = String::new();
        for extent in &self.shape {
            // Writing to a string cannot fail.
            let _ = write!(shape, "{extent}, ");
        }
        // A tuple of one element needs its comma.
        let shape = match self.shape.len() {
            1 => shape.trim_end(),
            _ => shape.trim_end_matches(", "),
        };
        let order = if self.fortran_order { "True" } else { "False" };
        format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': ({shape}), }}", self.descr)
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) { Ok(()) } else { Err(self.unexpected(&format!("`{c}`"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        let found: String = self.rest.chars().take(20).collect();
        format!("the header is malformed: {expected} is expected before `{}`", found.escape_debug())
    }

    /// A string without escapes; none of the headers that numpy writes has one.
    fn string(&mut self) -> Result<&'a str, String> {
        for quote in ['\'', '"'] {
            if self.eat(quote) {
                let rest = self.rest;
                let (string, after) = rest
                    .split_once(quote)
                    .filter(|(string, _)| !string.contains('\\'))
                    .ok_or_else(|| self.unexpected("a string"))?;
                self.rest = after;
                return Ok(string);
            }
        }
        Err(self.unexpected("a string"))
    }

    fn descr(&mut self) -> Result<String, String> {
        self.skip_space();
        if self.rest.starts_with('[') {
            return Err("arrays of records are not supported: save each field by itself".to_owned());
        }
        self.string().map(str::to_owned)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, String> {
        self.expect('(')?;
        let mut shape = Vec::new();
        while !self.eat(')') {
            self.skip_space();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.rest.split_at(digits);
            let extent = number.parse().map_err(|_| self.unexpected("an extent"))?;
            // Python 2 wrote long integers as `3L`.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if shape.len() == MAX_RANK {
                return Err(format!("the array has more than {MAX_RANK} dimensions"));
            }
            shape.push(extent);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, fortran_order: bool, shape: &[u64]) -> Header {
        Header { descr: descr.to_owned(), fortran_order, shape: shape.to_vec() }
    }

    #[test]
    fn headers_are_written_as_numpy_does_and_read_back() {
        for (header, text) in [
            (header("<f4", false, &[]), "{'descr': '<f4', 'fortran_order': False, 'shape': (), }"),
            (header("|b1", true, &[3]), "{'descr': '|b1', 'fortran_order': True, 'shape': (3,), }"),
            (
                header(">i8", false, &[2, 0]),
                "{'descr': '>i8', 'fortran_order': False, 'shape': (2, 0), }",
            ),
        ] {
            assert_eq!(header.text(), text);
            assert_eq!(Header::parse(text), Ok(header.clone()));
            assert_eq!(Header::parse(&format!("{text}   \n")), Ok(header));
        }
        let other = r#" {"shape":(2L,3L),"descr":"<u2" , 'fortran_order':False}"#;
        assert_eq!(Header::parse(other), Ok(header("<u2", false, &[2, 3])));
    }

    #[test]
    fn malformed_headers_say_where() {
        let error = |text: &str| Header::parse(text).unwrap_err();
        assert_eq!(error(""), "the header is malformed: `{` is expected before ``");
        assert_eq!(
            error("{'shape': (2, -1)}"),
            "the header is malformed: an extent is expected before `-1)}`"
        );
        assert_eq!(error("{}"), "the header does not say `descr`");
        assert_eq!(error("{'a': 1}"), "the header has an unknown key `a`");
        assert!(error("{'descr': [('x', '<f4')]}").contains("records"));
        assert!(error("{'descr': '<f4").contains("a string is expected"));
        assert!(error("{'shape': (99999999999999999999,)}").contains("an extent"));
        let deep = format!("{{'shape': ({})}}", "1,".repeat(65));
        assert_eq!(error(&deep), "the array has more than 64 dimensions");
        assert!(error("{'fortran_order': True, 'descr': '', 'shape': ()} x").contains("the end"));
    }
}
