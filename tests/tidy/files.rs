//! The files of the workspace: where they are, and what places their text names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Places of one machine, which mean nothing on another. Written in two parts, so that this file names none.
pub(crate) const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is where it was compiled")
}

pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("inside the workspace").display().to_string()
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a folder whose names end so, in order; what is built is left out.
pub(crate) fn collect(folder: &Path, extension: &str, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, extension, paths);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
}

/// What git keeps, and what it would keep if it were added now.
pub(crate) fn tracked() -> Vec<String> {
    let mut git = Command::new("git");
    // The owner of the files does not matter to somebody who only reads their names.
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.current_dir(root()).output().expect("git is installed");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names are text");
    let names: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "Cargo.toml"), "git knows this workspace");
    names
}

/// Whether the place stands there as the beginning of a path.
pub(crate) fn names_place(line: &str, place: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "_-./*})".contains(c);
    line.match_indices(place).any(|(at, _)| !line[..at].ends_with(part))
}

#[test]
fn a_place_of_a_machine_is_told_from_a_folder_of_the_same_name() {
    let place = MACHINE_PATHS[2];
    assert!(names_place(&format!("see {place}main"), place) && names_place(&format!("\"{place}x\""), place));
    assert!(!names_place(&format!("src{place}main"), place) && !names_place(&format!("{{dir}}{place}x"), place));
}
