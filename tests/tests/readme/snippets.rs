//! The fenced blocks of a document, each with the preceding comment that gives its purpose.

/// A fenced block.
pub(crate) struct Snippet {
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    /// Language after the fence; may be empty.
    pub(crate) language: String,
    /// `file: five/build.rs` of `<!-- file: five/build.rs -->` on the line before, if there is one.
    pub(crate) marker: Option<(String, String)>,
    /// The lines, each with its line break.
    pub(crate) text: String,
}

/// The fenced blocks of a document, in order.
pub(crate) fn snippets(document: &str) -> Vec<Snippet> {
    let mut found: Vec<Snippet> = Vec::new();
    let mut open = false;
    let mut before = "";
    for (number, line) in (1..).zip(document.lines()) {
        match line.strip_prefix("```") {
            Some(language) if !open => {
                let (language, marker) = (language.to_owned(), marker(before));
                found.push(Snippet { line: number, language, marker, text: String::new() });
                open = true;
            }
            Some(_) => open = false,
            None if open => {
                let snippet = found.last_mut().expect("a block is open");
                snippet.text += line;
                snippet.text.push('\n');
            }
            None => {}
        }
        before = line;
    }
    assert!(!open, "the last block is not closed");
    found
}

/// Key and value of a comment `<!-- key: value -->`.
fn marker(line: &str) -> Option<(String, String)> {
    let (key, value) = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")?;
    Some((key.to_owned(), value.to_owned()))
}

/// The one block with that marker.
#[track_caller]
pub(crate) fn find<'a>(snippets: &'a [Snippet], key: &str, value: &str) -> &'a str {
    let mut matching = snippets.iter().filter(|snippet| {
        snippet.marker.as_ref().is_some_and(|(k, v)| (k.as_str(), v.as_str()) == (key, value))
    });
    let found = matching.next().unwrap_or_else(|| panic!("no block is marked `{key}: {value}`"));
    assert!(matching.next().is_none(), "more than one block is marked `{key}: {value}`");
    &found.text
}
