//! Static archives, byte for byte the same wherever and whenever they are written.

use std::borrow::Cow;

use super::symbols;
use crate::diagnostics::Problem;
use crate::executor::{Contents, ObjectFile};

/// The first bytes of every archive.
const MAGIC: &[u8] = b"!<arch>\n";

/// Bytes of the header of a member.
const HEADER_BYTES: usize = 60;

/// What linkers of different systems expect of an archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArchiveKind {
    /// GNU: index `/`, long names in `//`.
    Gnu,
    /// Apple: index `__.SYMDEF`, names before the contents, members aligned to 8.
    Darwin,
    /// Microsoft: as GNU, with a second, sorted index.
    Coff,
}

impl ArchiveKind {
    /// The kind that the linkers for a target triple read.
    pub fn for_triple(triple: &str) -> Self {
        if triple.contains("-apple-") {
            ArchiveKind::Darwin
        } else if triple.ends_with("-msvc") {
            ArchiveKind::Coff
        } else {
            ArchiveKind::Gnu
        }
    }
}

/// An object as the member of an archive.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The name of the file.
    pub name: Cow<'a, str>,
    /// The global symbols that the object defines.
    pub symbols: Vec<Vec<u8>>,
    /// The contents of the file.
    pub contents: Contents<'a>,
}

impl<'a> Member<'a> {
    /// An object that is there as a whole.
    ///
    /// # Errors
    ///
    /// The object cannot be read.
    pub fn of(object: &'a ObjectFile) -> Result<Self, Problem> {
        let symbols = symbols(object)?.into_iter();
        let symbols = symbols.filter(|symbol| symbol.is_global && !symbol.is_undefined);
        let symbols = symbols.map(|symbol| symbol.name).collect();
        Ok(Member { name: object.name.as_str().into(), symbols, contents: object.into() })
    }
}

/// A member before its place is known.
struct Placed<'a> {
    header_name: String,
    /// Written between header and contents, and counted as contents: Apple's place for names.
    name_in_contents: Vec<u8>,
    contents: Contents<'a>,
}

impl Placed<'_> {
    fn contents_bytes(&self) -> usize {
        self.name_in_contents.len() + self.contents.len()
    }

    /// Bytes with header and the padding to an even offset.
    fn bytes(&self) -> usize {
        (HEADER_BYTES + self.contents_bytes()).next_multiple_of(2)
    }
}

/// Puts objects into an archive, with an index of the global symbols they define.
///
/// Times, owners and paths are left out, so equal members make equal archives.
///
/// # Errors
///
/// An object has a name that is empty or a path, or the archive would be larger than the 4 GiB or,
/// for Microsoft, have more than the 65,535 members that its index can address.
pub fn archive<'a>(kind: ArchiveKind, objects: Vec<Member<'a>>) -> Result<Contents<'a>, Problem> {
    let count = objects.len();
    if kind == ArchiveKind::Coff && count > usize::from(u16::MAX) {
        return Err(Problem::new(format!("{count} objects are too many for one archive")));
    }
    let mut index = Vec::new();
    for (member, object) in objects.iter().enumerate() {
        if object.name.is_empty() || object.name.contains(['/', '\n', '\0']) {
            return Err(Problem::new(format!(
                "`{}` cannot be the name of an archive member",
                object.name.escape_debug()
            )));
        }
        index.extend(object.symbols.iter().map(|name| (name.clone(), member)));
    }
    let members = match kind {
        ArchiveKind::Darwin => darwin_members(objects, &index),
        ArchiveKind::Gnu | ArchiveKind::Coff => gnu_members(kind, objects, &index),
    };
    // The indices hold offsets of members that stand behind them, and their own size does not
    // depend on the values: first with zeros, then with the offsets.
    let mut offsets = Vec::with_capacity(members.len());
    let mut end = MAGIC.len();
    for member in &members {
        offsets.push(end as u64);
        end += member.bytes();
    }
    if u32::try_from(end).is_err() {
        return Err(Problem::new(format!("an archive of {end} bytes is too large for its index")));
    }
    let offsets = &offsets[members.len() - count..];
    let place = |member: usize| offsets[member] as u32;

    let mut contents = Contents::from(MAGIC);
    for (position, mut member) in members.into_iter().enumerate() {
        match (kind, position) {
            (ArchiveKind::Darwin, 0) => {
                member.contents = darwin_index(&index, place).into();
            }
            (ArchiveKind::Gnu | ArchiveKind::Coff, 0) => {
                member.contents = gnu_index(&index, place).into();
            }
            (ArchiveKind::Coff, 1) => {
                member.contents = coff_index(&index, count, place).into();
            }
            _ => {}
        }
        let padding = member.bytes() - HEADER_BYTES - member.contents_bytes();
        let mut header = header(&member.header_name, member.contents_bytes()).into_bytes();
        header.append(&mut member.name_in_contents);
        contents.push(header);
        contents.append(member.contents);
        if padding > 0 {
            contents.push(b"\n".as_slice());
        }
    }
    Ok(contents)
}

/// A member's header: name, date, owner, group, mode, size. The name takes 16 bytes, however many
/// characters these are.
fn header(name: &str, size: usize) -> String {
    let padding = " ".repeat(16usize.saturating_sub(name.len()));
    format!("{name}{padding}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644)
}

/// Index, table of long names, then the objects; indices still without offsets.
fn gnu_members<'a>(
    kind: ArchiveKind,
    objects: Vec<Member<'a>>,
    index: &[(Vec<u8>, usize)],
) -> Vec<Placed<'a>> {
    let special = |name: &str, contents: Vec<u8>| Placed {
        header_name: name.to_owned(),
        name_in_contents: Vec::new(),
        contents: contents.into(),
    };
    let mut members = vec![special("/", gnu_index(index, |_| 0))];
    if kind == ArchiveKind::Coff {
        members.push(special("/", coff_index(index, objects.len(), |_| 0)));
    }
    let end_of_name = if kind == ArchiveKind::Coff { "\0" } else { "/\n" };
    let mut long_names = String::new();
    let mut named = Vec::with_capacity(objects.len());
    for object in objects {
        // A name of 15 bytes and its slash just fit.
        let header_name = if object.name.len() < 16 {
            format!("{}/", object.name)
        } else {
            let offset = long_names.len();
            long_names += &object.name;
            long_names += end_of_name;
            format!("/{offset}")
        };
        named.push(Placed { header_name, name_in_contents: Vec::new(), contents: object.contents });
    }
    if !long_names.is_empty() {
        members.push(special("//", long_names.into_bytes()));
    }
    members.append(&mut named);
    members
}

/// Number of symbols, the offset of the member of each, their names; numbers big-endian.
fn gnu_index(index: &[(Vec<u8>, usize)], place: impl Fn(usize) -> u32) -> Vec<u8> {
    let mut bytes = (index.len() as u32).to_be_bytes().to_vec();
    for (_, member) in index {
        bytes.extend(place(*member).to_be_bytes());
    }
    for (name, _) in index {
        bytes.extend(name);
        bytes.push(0);
    }
    bytes
}

/// Offsets of the members, then for each symbol in order of name its member, counted from 1, then
/// the names; numbers little-endian.
fn coff_index(index: &[(Vec<u8>, usize)], members: usize, place: impl Fn(usize) -> u32) -> Vec<u8> {
    let mut sorted: Vec<_> = index.iter().collect();
    sorted.sort();
    let mut bytes = (members as u32).to_le_bytes().to_vec();
    for member in 0..members {
        bytes.extend(place(member).to_le_bytes());
    }
    bytes.extend((sorted.len() as u32).to_le_bytes());
    for (_, member) in &sorted {
        bytes.extend((*member as u16 + 1).to_le_bytes());
    }
    for (name, _) in &sorted {
        bytes.extend(name);
        bytes.push(0);
    }
    bytes
}

/// Index, then the objects, each padded so that the next one is aligned to 8.
fn darwin_members<'a>(objects: Vec<Member<'a>>, index: &[(Vec<u8>, usize)]) -> Vec<Placed<'a>> {
    let mut offset = MAGIC.len();
    let mut member = |name: &str, mut contents: Contents<'a>, fill: u8| {
        let mut name = name.as_bytes().to_vec();
        let start = (offset + HEADER_BYTES + name.len()).next_multiple_of(8);
        name.resize(start - offset - HEADER_BYTES, 0);
        let padding = contents.len().next_multiple_of(8) - contents.len();
        contents.push(vec![fill; padding]);
        let member =
            Placed { header_name: format!("#1/{}", name.len()), name_in_contents: name, contents };
        offset += member.bytes();
        member
    };
    let mut members = vec![member("__.SYMDEF", darwin_index(index, |_| 0).into(), 0)];
    members.extend(objects.into_iter().map(|object| member(&object.name, object.contents, b'\n')));
    members
}

/// Bytes of the pairs, pairs of (offset of name, offset of member), bytes of the names, names;
/// numbers little-endian.
fn darwin_index(index: &[(Vec<u8>, usize)], place: impl Fn(usize) -> u32) -> Vec<u8> {
    let mut bytes = (index.len() as u32 * 8).to_le_bytes().to_vec();
    let mut names = Vec::new();
    for (name, member) in index {
        bytes.extend((names.len() as u32).to_le_bytes());
        bytes.extend(place(*member).to_le_bytes());
        names.extend(name);
        names.push(0);
    }
    names.resize(names.len().next_multiple_of(8), 0);
    bytes.extend((names.len() as u32).to_le_bytes());
    bytes.extend(names);
    bytes
}

#[cfg(test)]
mod tests {
    use object::BinaryFormat;
    use object::read::archive::ArchiveFile;

    use super::super::testing::object;
    use super::*;

    fn objects(format: BinaryFormat) -> [ObjectFile; 3] {
        [
            object(format, "日本.o", &["run", "alpha"], &["kernel_0"]),
            object(format, "a_name_beyond_the_header.o", &["kernel_0"], &[]),
            object(format, "fifteen_bytes.o", &["zeta"], &[]),
        ]
    }

    fn archived(kind: ArchiveKind, objects: &[ObjectFile]) -> Result<Vec<u8>, Problem> {
        let members = objects.iter().map(Member::of).collect::<Result<_, _>>()?;
        let contents = archive(kind, members)?;
        let bytes = contents.to_bytes().unwrap();
        assert_eq!(bytes.len(), contents.len());
        Ok(bytes)
    }

    #[test]
    fn members_and_index_read_back() {
        for (kind, format, prefix) in [
            (ArchiveKind::Gnu, BinaryFormat::Elf, ""),
            (ArchiveKind::Darwin, BinaryFormat::MachO, "_"),
            (ArchiveKind::Coff, BinaryFormat::Coff, ""),
        ] {
            let objects = objects(format);
            let bytes = archived(kind, &objects).unwrap();
            let archive = ArchiveFile::parse(bytes.as_slice()).unwrap();
            let members: Vec<_> = archive.members().map(Result::unwrap).collect();
            assert_eq!(members.len(), 3, "{kind:?}");
            for (member, object) in members.iter().zip(&objects) {
                assert_eq!(member.name(), object.name.as_bytes());
                let data = member.data(bytes.as_slice()).unwrap();
                assert!(data.starts_with(&object.bytes), "{kind:?} {}", object.name);
                assert!(data.len() < object.bytes.len() + 8);
                assert_eq!(
                    (member.date(), member.uid(), member.gid()),
                    (Some(0), Some(0), Some(0))
                );
            }
            let mut found = Vec::new();
            for symbol in archive.symbols().unwrap().unwrap() {
                let symbol = symbol.unwrap();
                let member = archive.member(symbol.offset()).unwrap();
                let name = String::from_utf8(symbol.name().to_vec()).unwrap();
                found.push((name, String::from_utf8(member.name().to_vec()).unwrap()));
            }
            found.sort();
            let expected = [
                ("alpha", "日本.o"),
                ("kernel_0", "a_name_beyond_the_header.o"),
                ("run", "日本.o"),
                ("zeta", "fifteen_bytes.o"),
            ];
            let expected =
                expected.map(|(symbol, member)| (format!("{prefix}{symbol}"), member.to_owned()));
            assert_eq!(found, expected, "{kind:?}");
        }
    }

    /// Apple's linker refuses members that are not aligned to 8.
    #[test]
    fn darwin_members_are_aligned() {
        let objects = objects(BinaryFormat::MachO);
        let bytes = archived(ArchiveKind::Darwin, &objects).unwrap();
        for member in ArchiveFile::parse(bytes.as_slice()).unwrap().members() {
            assert_eq!(member.unwrap().file_range().0 % 8, 0);
        }
    }

    /// The `ar` and `nm` of the system, where there are any, agree with what is written.
    #[test]
    fn the_systems_tools_read_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.a");
        let objects = objects(BinaryFormat::Elf);
        std::fs::write(&path, archived(ArchiveKind::Gnu, &objects).unwrap()).unwrap();
        let run = |tool: &str, options: &[&str]| {
            let output = std::process::Command::new(tool).args(options).arg(&path).output();
            output.ok().map(|output| {
                assert!(output.status.success(), "{tool}: {output:?}");
                String::from_utf8(output.stdout).unwrap()
            })
        };
        if let Some(listing) = run("ar", &["t"]) {
            let names: Vec<_> = listing.lines().collect();
            assert_eq!(names, ["日本.o", "a_name_beyond_the_header.o", "fifteen_bytes.o"]);
        }
        if let Some(listing) = run("nm", &["--print-armap"]) {
            assert!(listing.contains("kernel_0 in a_name_beyond_the_header.o"), "{listing}");
        }
    }

    #[test]
    fn paths_are_no_member_names() {
        for name in ["", "a/b.o", "a\nb"] {
            let mut object = object(BinaryFormat::Elf, "x.o", &["f"], &[]);
            object.name = name.to_owned();
            let objects = [object];
            assert!(archived(ArchiveKind::Gnu, &objects).is_err(), "{name:?}");
        }
        assert_eq!(ArchiveKind::for_triple("aarch64-apple-darwin"), ArchiveKind::Darwin);
        assert_eq!(ArchiveKind::for_triple("x86_64-pc-windows-msvc"), ArchiveKind::Coff);
        assert_eq!(ArchiveKind::for_triple("x86_64-pc-windows-gnu"), ArchiveKind::Gnu);
    }
}
