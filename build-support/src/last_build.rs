//! The last build of a model, whose files stand if this one would make the same.
//!
//! Cargo runs a build script again when a time stamp changes, which a checkout does to every file.
//! So the contents decide: of the model and the data beside it, of samples, of the options, of the
//! build script itself. The digest is made for code that is not optimised, as build scripts are: some ten
//! instructions for sixteen bytes. It is not cryptographic, as the only ones who could make two
//! models alike are those who may change the model.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use niello::codegen::c::compiler_identity;
use niello::executor::aot::SharedWeights;
use niello::executor::write_if_changed;
use niello::options::{Backend, CompileOptions};

use crate::artifacts::Artifacts;
use crate::config::Config;
use crate::sharing::ForOthers;

/// What a record begins with; another version's are not read.
const VERSION: &str = "niello build 2";

/// Where the record of a model's last build is, and what it would have to say of this one.
pub(crate) struct LastBuild {
    path: PathBuf,
    /// Of everything but the data beside the model, whose files the import alone tells. Made before
    /// the model is compiled: a model that changes meanwhile is compiled again.
    inputs: Digest,
}

impl LastBuild {
    /// None if what decides a build cannot be found out, which the build will tell.
    pub(crate) fn of(
        config: &Config,
        folder: &Path,
        options: &CompileOptions,
    ) -> Option<LastBuild> {
        let options = CompileOptions { jobs: 0, ..options.clone() };
        let compiler = match options.backend {
            Backend::C if !options.stub => compiler_identity(&options.target).ok()?,
            _ => String::new(),
        };
        let script = std::env::current_exe().ok()?;
        let script = (stamp(&script.metadata().ok()?), script);
        let limit = std::env::var_os("NIELLO_MEMORY_LIMIT");
        let quantization = config.quantization.as_ref().filter(|_| !options.stub);
        let samples = match quantization {
            Some(how) => how.sample_files().ok()?,
            None => Vec::new(),
        };
        let quantization = (quantization, &samples);
        let decides = (
            (&config.model, &options, &config.weights, &config.runtime),
            (compiler, script, limit, quantization),
        );
        let mut digest = Digest::default();
        digest.update(format!("{decides:?}").as_bytes());
        digest.update_file(&config.model).ok()?;
        samples.iter().try_for_each(|sample| digest.update_file(sample)).ok()?;
        let path = folder.join(format!("{}.niello-build", config.log_stem()));
        Some(LastBuild { path, inputs: digest })
    }

    /// What the last build made, if this one would make the same and it is still there.
    pub(crate) fn artifacts(&self) -> Option<Artifacts> {
        let record = fs::read_to_string(&self.path).ok()?;
        let mut record = Fields(record.lines());
        if record.0.next()? != VERSION {
            return None;
        }
        let key = record.field("key")?;
        let artifacts = Artifacts {
            name: record.field("name")?.to_owned(),
            bindings: record.file("bindings")?,
            archives: record.list("archives", Fields::file)?,
            weights: record.list("weights", Fields::file)?.pop(),
            external_data: record
                .list("external", |fields, name| fields.field(name).map(PathBuf::from))?,
            log: record.file("log")?,
            stub: record.number("stub")? != 0,
            workspace_bytes: record.number("workspace")?,
            weight_bytes: record.number("weight bytes")?,
            code_bytes: record.number("code bytes")?,
            macs: record.number("macs")?,
            shared_weight_bytes: record.number("shared bytes")?,
            for_others: record.for_others()?,
        };
        let same = self.key(&artifacts.external_data).is_ok_and(|own| own == key);
        same.then_some(artifacts)
    }

    /// Notes what this build has made, for the next one. What cannot be noted is built again.
    pub(crate) fn keep(&self, artifacts: &Artifacts) {
        let Some(record) = self.record(artifacts) else {
            let _ = fs::remove_file(&self.path);
            return;
        };
        let _ = write_if_changed(&self.path, record.as_bytes());
    }

    fn record(&self, artifacts: &Artifacts) -> Option<String> {
        let Artifacts {
            name,
            bindings,
            archives,
            weights,
            external_data,
            log,
            stub,
            workspace_bytes,
            weight_bytes,
            code_bytes,
            macs,
            shared_weight_bytes,
            for_others,
        } = artifacts;
        let mut text = format!("{VERSION}\n");
        let mut put = |name: &str, value: &str| {
            text += &format!("{name} {value}\n");
            // A line break in a name would make two fields of one.
            (!value.contains('\n')).then_some(())
        };
        put("key", &self.key(external_data).ok()?)?;
        put("name", name)?;
        put("bindings", &stamped(bindings)?)?;
        for (name, files) in [("archives", &archives[..]), ("weights", weights.as_slice())] {
            put(name, &files.len().to_string())?;
            for file in files {
                put(name, &stamped(file)?)?;
            }
        }
        put("external", &external_data.len().to_string())?;
        for file in external_data {
            put("external", file.to_str()?)?;
        }
        put("log", &stamped(log)?)?;
        let numbers = [
            ("stub", u64::from(*stub)),
            ("workspace", *workspace_bytes),
            ("weight bytes", *weight_bytes),
            ("code bytes", *code_bytes),
            ("macs", *macs),
            ("shared bytes", *shared_weight_bytes),
        ];
        for (name, number) in numbers {
            put(name, &number.to_string())?;
        }
        match for_others {
            ForOthers::Nothing => put("for others", "nothing")?,
            ForOthers::External => put("for others", "external")?,
            ForOthers::Unknown => put("for others", "unknown")?,
            ForOthers::Weights(SharedWeights { symbol, bytes, constants }) => {
                put("for others", "weights")?;
                put("symbol", symbol)?;
                put("bytes", &bytes.to_string())?;
                put("constants", &constants.len().to_string())?;
                for (key, Range { start, end }) in &**constants {
                    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                    put("constant", &format!("{key} {start} {end}"))?;
                }
            }
        }
        // A record that was cut short lacks it.
        put("end", "of record")?;
        Some(text)
    }

    /// The digest of everything, as text.
    fn key(&self, external_data: &[PathBuf]) -> io::Result<String> {
        let mut digest = self.inputs.clone();
        external_data.iter().try_for_each(|path| digest.update_file(path))?;
        Ok(digest.text())
    }
}

/// Length and time of change of a file, by which it is known to be the one that was written.
fn stamp(metadata: &Metadata) -> String {
    let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("{}/{}", metadata.len(), changed.map_or(0, |time| time.as_nanos()))
}

/// A file's stamp and path.
fn stamped(path: &Path) -> Option<String> {
    Some(format!("{} {}", stamp(&fs::metadata(path).ok()?), path.to_str()?))
}

/// The lines of a record, each a name and a value.
struct Fields<'a>(std::str::Lines<'a>);

impl<'a> Fields<'a> {
    fn field(&mut self, name: &str) -> Option<&'a str> {
        self.0.next()?.strip_prefix(name)?.strip_prefix(' ')
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// A file that is as it was written.
    fn file(&mut self, name: &str) -> Option<PathBuf> {
        let field = self.field(name)?;
        let (_, path) = field.split_once(' ')?;
        (stamped(Path::new(path)).as_deref() == Some(field)).then(|| PathBuf::from(path))
    }

    /// What other models can use, and the end of the record.
    fn for_others(&mut self) -> Option<ForOthers> {
        let others = match self.field("for others")? {
            "nothing" => ForOthers::Nothing,
            "external" => ForOthers::External,
            "unknown" => ForOthers::Unknown,
            "weights" => {
                let (symbol, bytes) = (self.field("symbol")?.to_owned(), self.number("bytes")?);
                let constants = self.list("constants", |fields, _| fields.constant())?;
                ForOthers::Weights(SharedWeights {
                    symbol,
                    bytes,
                    constants: Arc::new(constants.into_iter().collect()),
                })
            }
            _ => return None,
        };
        (self.field("end")? == "of record").then_some(others)
    }

    /// The key of a constant, and where it is.
    fn constant(&mut self) -> Option<([u8; 32], Range<u64>)> {
        let mut fields = self.field("constant")?.split(' ');
        let (text, start, end) = (fields.next()?, fields.next()?, fields.next()?);
        let mut key = [0; 32];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some((key, start.parse().ok()?..end.parse().ok()?))
    }

    fn list<T>(
        &mut self,
        name: &str,
        mut item: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> Option<Vec<T>> {
        (0..self.number(name)?).map(|_| item(self, name)).collect()
    }
}

/// 128 bits in which a changed byte shows: products of neighbouring words, folded.
#[derive(Clone, Debug)]
struct Digest(u64, u64);

impl Default for Digest {
    fn default() -> Digest {
        // Digits of the golden ratio and of the square root of two.
        Digest(0x9e37_79b9_7f4a_7c15, 0x6a09_e667_f3bc_c908)
    }
}

impl Digest {
    fn update(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<16>();
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        // By hand: an iterator is a call for each word where nothing is optimised.
        let mut at = 0;
        while at < words.len() {
            self.word(u128::from_le_bytes(words[at]));
            at += 1;
        }
        self.word(u128::from_le_bytes(last));
        self.word(bytes.len() as u128);
    }

    fn update_file(&mut self, path: &Path) -> io::Result<()> {
        // Neither a folder nor a pipe, which would wait for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let mut filled = 0;
            // Pieces are as long as they can be, so that they are the same every time.
            while filled < buffer.len() {
                match file.read(&mut buffer[filled..])? {
                    0 => break,
                    count => filled += count,
                }
            }
            self.update(&buffer[..filled]);
            if filled < buffer.len() {
                return Ok(());
            }
        }
    }

    fn word(&mut self, word: u128) {
        let (low, high) = (word as u64, (word >> 64) as u64);
        let product = u128::from(self.0 ^ low).wrapping_mul(u128::from(self.1 ^ high));
        // What a factor of zero would lose is added again.
        self.0 = (product as u64).wrapping_add(high).rotate_left(23);
        self.1 = ((product >> 64) as u64).wrapping_add(low) ^ 0xa076_1d64_78bd_642f;
    }

    fn text(mut self) -> String {
        for round in 0..4 {
            self.word(round);
        }
        format!("{:016x}{:016x}", self.0, self.1)
    }
}
