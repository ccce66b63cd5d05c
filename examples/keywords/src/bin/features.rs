//! Reads sounds of a second from the standard input, one after the other, and writes the features of each to the standard
//! output. `train/dataset.py` makes the training set with it.

use std::io::{self, Read, Write};

use keywords::{SOUND, features};

fn main() -> io::Result<()> {
    let mut sounds = Vec::new();
    io::stdin().lock().read_to_end(&mut sounds)?;
    let (sounds, rest) = sounds.as_chunks::<SOUND>();
    if !rest.is_empty() {
        let error = format!("a sound has {SOUND} bytes, the last one {}", rest.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut output = io::stdout().lock();
    sounds.iter().try_for_each(|sound| output.write_all(&features(sound)))
}
