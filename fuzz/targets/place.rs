//! Keys as they are typed at the command line, with lines behind a colon: what comes out is a key that the service
//! takes, and stays inside of the repository.
#![no_main]
#![allow(dead_code, reason = "the whole file of the command line is here, for its text part")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lockkeeper_core::key::Key;
use lockkeeper_core::span::Span;

#[path = "../../crates/cli/src/foreign.rs"]
mod foreign;
#[path = "../../crates/cli/src/lines.rs"]
mod lines;
#[path = "../../crates/cli/src/place.rs"]
mod place;

static REPOSITORY: LazyLock<(tempfile::TempDir, place::Place)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join(".git")).expect("a folder");
    std::fs::create_dir_all(folder.path().join("src")).expect("a folder");
    std::fs::write(folder.path().join("src/a.rs"), "x").expect("a file");
    std::os::unix::fs::symlink("/etc", folder.path().join("out")).expect("a link");
    std::os::unix::fs::symlink("b", folder.path().join("a")).expect("a link");
    std::os::unix::fs::symlink("a", folder.path().join("b")).expect("a link");
    let place = place::Place::around(&folder.path().join("src")).expect("a place");
    (folder, place)
});

fuzz_target!(|typed: &str| {
    let place = &REPOSITORY.1;
    let Ok((key, lines)) = place.key_and_lines(typed) else { return };
    if let Ok(parsed) = Key::parse(&key) {
        let shown = parsed.to_string();
        assert!(
            !shown.starts_with("../") && !shown.starts_with('/') && !shown.starts_with("out/"),
            "{typed:?}: {shown}"
        );
    } else {
        // Logical keys are judged by the service.
        assert!(key.contains(':'), "{typed:?} became {key:?}, which is no key");
    }
    if let Some(lines) = lines {
        let _ = Span::parse(&lines);
    }
});
