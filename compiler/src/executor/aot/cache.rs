//! Compiled functions on disk, by their symbols.
//!
//! A function's symbol holds a digest of everything that decides its code, so a file is right for
//! ever, and whoever wrote it. Files are written aside and renamed, and have a checksum: any number of
//! processes may use one folder. What cannot be read, is damaged or cannot be written counts as not
//! being there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::diagnostics::Problem;
use crate::ir::digest;
use crate::options::bytes_of_variable;

/// What a file begins with; the checksum and the object follow.
const MAGIC: &[u8; 16] = b"niello kernel 1\n";

/// Bytes before the object.
const HEADER: usize = MAGIC.len() + 32;

/// How the name of a file ends.
const ENDING: &str = "kernel";

/// Bytes that a cache may take unless it is told otherwise.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// How old a file's time of use may be before a use renews it: a write for each read would be slow.
const USE_GRANULARITY: Duration = Duration::from_secs(60 * 60);

/// How old a file must be that a process left unfinished.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder of compiled functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelCache {
    folder: PathBuf,
    limit: u64,
}

/// What is in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheContents {
    /// Compiled functions.
    pub functions: usize,
    /// Bytes that they take.
    pub bytes: u64,
}

/// A file of a cache.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// The environment variable that names the folder of a cache that projects share.
pub const CACHE_DIR_VARIABLE: &str = "NIELLO_CACHE_DIR";

/// The environment variable that says how many bytes a cache may take: `500M`, `2G`.
pub const CACHE_SIZE_VARIABLE: &str = "NIELLO_CACHE_SIZE";

impl KernelCache {
    /// The cache that [`CACHE_DIR_VARIABLE`] names, if it is set and not empty.
    ///
    /// # Errors
    ///
    /// [`CACHE_SIZE_VARIABLE`] is no number of bytes.
    pub fn from_environment() -> Result<Option<KernelCache>, Problem> {
        KernelCache::of_variables(None, |name| std::env::var(name).ok())
    }

    /// The cache that [`CACHE_DIR_VARIABLE`] names, or one in another folder, as large as
    /// [`CACHE_SIZE_VARIABLE`] says; `value` is what is asked for the variables, of which an empty one
    /// counts as not set.
    ///
    /// # Errors
    ///
    /// [`CACHE_SIZE_VARIABLE`] is no number of bytes.
    pub fn of_variables(
        otherwise: Option<PathBuf>,
        mut value: impl FnMut(&'static str) -> Option<String>,
    ) -> Result<Option<KernelCache>, Problem> {
        let mut value = |name| value(name).filter(|value| !value.is_empty());
        let limit = match value(CACHE_SIZE_VARIABLE) {
            None => DEFAULT_CACHE_BYTES,
            Some(size) => bytes_of_variable(CACHE_SIZE_VARIABLE, &size)?,
        };
        let folder = value(CACHE_DIR_VARIABLE).map(PathBuf::from).or(otherwise);
        Ok(folder.map(|folder| KernelCache::new(folder, limit)))
    }

    /// The cache in a folder, which is made when something is put there. It is held to about `limit`
    /// bytes: what has not been used for longest goes.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> KernelCache {
        KernelCache { folder: folder.into(), limit }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, symbol: &str) -> PathBuf {
        // Digests end symbols, so the folders fill evenly.
        let shard = symbol.get(symbol.len().saturating_sub(2)..).unwrap_or("00");
        self.folder.join(shard).join(format!("{symbol}.{ENDING}"))
    }

    /// The object of a function.
    pub fn get(&self, symbol: &str) -> Option<Vec<u8>> {
        let path = self.path(symbol);
        let mut bytes = fs::read(&path).ok()?;
        let (header, object) = bytes.split_at_checked(HEADER)?;
        let (magic, checksum) = header.split_at(MAGIC.len());
        if magic != MAGIC || checksum != digest(object) {
            // It would only be read again.
            let _ = fs::remove_file(&path);
            return None;
        }
        bytes.drain(..HEADER);
        // That it could not be noted makes it go earlier, no more.
        let _ = note_use(&path);
        Some(bytes)
    }

    /// Keeps the object of a function, if that can be done.
    pub fn put(&self, symbol: &str, object: &[u8]) {
        // Nothing is lost but time.
        let _ = self.try_put(symbol, object);
    }

    fn try_put(&self, symbol: &str, object: &[u8]) -> io::Result<()> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let path = self.path(symbol);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let aside = path.with_extension(format!("{}-{number}.new", std::process::id()));
        if let Some(shard) = path.parent() {
            fs::create_dir_all(shard)?;
        }
        let contents = [&MAGIC[..], &digest(object), object].concat();
        let written = fs::write(&aside, contents).and_then(|()| fs::rename(&aside, &path));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    /// Removes what has not been used for longest until the rest takes less than the limit.
    pub fn trim(&self) {
        let mut entries = self.entries();
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        if bytes <= self.limit {
            return;
        }
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        // Some room, so that not every function that comes is followed by a trim.
        let enough = self.limit / 10 * 9;
        for entry in entries {
            if bytes <= enough {
                return;
            }
            if fs::remove_file(&entry.path).is_ok() {
                bytes -= entry.bytes;
            }
        }
    }

    /// What is in the cache.
    pub fn contents(&self) -> CacheContents {
        let entries = self.entries();
        CacheContents {
            functions: entries.len(),
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
        }
    }

    /// Removes all functions, and nothing else that is in the folder.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub fn clear(&self) -> io::Result<CacheContents> {
        let mut removed = CacheContents::default();
        for entry in self.entries() {
            match fs::remove_file(&entry.path) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    removed.functions += 1;
                    removed.bytes += entry.bytes;
                }
            }
        }
        Ok(removed)
    }

    /// The functions; files that a process left unfinished are removed on the way.
    fn entries(&self) -> Vec<Entry> {
        let read = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut entries = Vec::new();
        for shard in read(&self.folder) {
            for file in read(&shard.path()) {
                let path = file.path();
                let Ok(metadata) = file.metadata() else { continue };
                let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                let ending = path.extension().unwrap_or_default();
                let is_ours = file.file_name().to_string_lossy().starts_with("niello_kernel_");
                if is_ours && ending == ENDING {
                    entries.push(Entry { path, bytes: metadata.len(), used });
                } else if is_ours
                    && ending == "new"
                    && used.elapsed().is_ok_and(|age| age > ABANDONED)
                {
                    let _ = fs::remove_file(path);
                }
            }
        }
        entries
    }
}

fn note_use(path: &Path) -> io::Result<()> {
    let used = fs::metadata(path)?.modified()?;
    match used.elapsed() {
        Ok(age) if age < USE_GRANULARITY => Ok(()),
        _ => File::options().write(true).open(path)?.set_modified(SystemTime::now()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: [&str; 3] =
        ["niello_kernel_add_0a", "niello_kernel_mul_0a", "niello_kernel_sub_ff"];

    fn cache(limit: u64) -> (tempfile::TempDir, KernelCache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache::new(folder.path().join("cache"), limit);
        (folder, cache)
    }

    #[test]
    fn what_is_put_is_there_for_every_user_of_the_folder() {
        let (_folder, cache) = cache(1 << 20);
        assert_eq!(cache.get(SYMBOLS[0]), None);
        cache.put(SYMBOLS[0], b"code");
        cache.put(SYMBOLS[1], b"other");
        cache.put(SYMBOLS[0], b"code");
        let other = KernelCache::new(cache.folder(), 0);
        assert_eq!(other.get(SYMBOLS[0]).as_deref(), Some(&b"code"[..]));
        assert_eq!(other.get(SYMBOLS[1]).as_deref(), Some(&b"other"[..]));
        assert_eq!(other.get(SYMBOLS[2]), None);
        let bytes = (2 * HEADER + "codeother".len()) as u64;
        assert_eq!(cache.contents(), CacheContents { functions: 2, bytes });
    }

    #[test]
    fn empty_variables_are_not_set() {
        let of = |dir: &'static str, size: &'static str| {
            KernelCache::of_variables(Some("own".into()), move |name| {
                Some(if name == CACHE_DIR_VARIABLE { dir } else { size }.to_owned())
            })
        };
        assert_eq!(of("", ""), Ok(Some(KernelCache::new("own", DEFAULT_CACHE_BYTES))));
        assert_eq!(of("shared", "2K"), Ok(Some(KernelCache::new("shared", 2048))));
        assert!(of("shared", "lots").is_err());
    }

    #[test]
    fn damaged_files_are_not_there() {
        let (_folder, cache) = cache(1 << 20);
        cache.put(SYMBOLS[0], b"code");
        let path = cache.path(SYMBOLS[0]);
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..0], &whole[..HEADER - 1], &whole[..whole.len() - 1]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(SYMBOLS[0]), None);
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(&path, changed).unwrap();
        assert_eq!(cache.get(SYMBOLS[0]), None);
        assert!(!path.exists());
        cache.put(SYMBOLS[0], b"code");
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_empty_cache() {
        let (folder, _) = cache(0);
        fs::write(folder.path().join("file"), "").unwrap();
        let cache = KernelCache::new(folder.path().join("file/cache"), 1 << 20);
        cache.put(SYMBOLS[0], b"code");
        assert_eq!(cache.get(SYMBOLS[0]), None);
        cache.trim();
        assert_eq!(cache.contents(), CacheContents::default());
        assert_eq!(cache.clear().unwrap(), CacheContents::default());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let object = vec![7; 1000];
        let (_folder, cache) = cache(2 * (1000 + HEADER as u64) + 500);
        let hour = Duration::from_secs(3600);
        for (symbol, hours) in SYMBOLS.iter().zip([10, 30, 20]) {
            cache.put(symbol, &object);
            let file = File::options().write(true).open(cache.path(symbol)).unwrap();
            file.set_modified(SystemTime::now() - hour * hours).unwrap();
        }
        // Used now, so the third is the one to go.
        assert!(cache.get(SYMBOLS[1]).is_some());
        cache.trim();
        let there = SYMBOLS.map(|symbol| cache.path(symbol).exists());
        assert_eq!(there, [true, true, false]);
    }

    #[test]
    fn clearing_leaves_strangers_files_alone() {
        let (_folder, cache) = cache(1 << 20);
        cache.put(SYMBOLS[0], b"code");
        let stranger = cache.folder().join("0a/notes.txt");
        fs::write(&stranger, "mine").unwrap();
        assert_eq!(cache.clear().unwrap().functions, 1);
        assert_eq!(cache.contents(), CacheContents::default());
        assert!(stranger.exists());
    }

    #[test]
    fn processes_share_a_folder() {
        let (_folder, cache) = cache(20_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let symbol = format!("niello_kernel_k_{:02x}", round % 20);
                        let object = vec![round as u8 % 20; 2000];
                        if let Some(found) = cache.get(&symbol) {
                            assert_eq!(found, object);
                        }
                        cache.put(&symbol, &object);
                        cache.trim();
                    }
                });
            }
        });
        assert!(cache.contents().bytes <= 20_000 + 4 * 2048);
    }
}
