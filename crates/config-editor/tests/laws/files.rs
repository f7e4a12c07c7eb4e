//! What happens to files: links, modes, leftovers, and what is not to be written at all.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper_config_editor::{Editor, Error, Value, get, set, unset};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.toml", "a.yaml", "a.json"] {
        let path = folder.path().join(name);
        assert!(set(&path, "x.y", &"1".into()).unwrap().written);
        assert_eq!(mode(&path), 0o600, "{name}");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        set(&path, "x.y", &"2".into()).unwrap();
        assert_eq!(mode(&path), 0o640, "{name}");
        assert_eq!(get(&path, "x.y").unwrap(), Some(Value::from("2")));
        assert_eq!(get(&path, "x.z").unwrap(), None);
    }
    assert_eq!(names(folder.path()), [".a.json.lock", ".a.toml.lock", ".a.yaml.lock", "a.json", "a.toml", "a.yaml"]);
}

#[test]
fn a_link_stays_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (dotfiles, home) = (folder.path().join("dotfiles"), folder.path().join("home"));
    fs::create_dir_all(&dotfiles).unwrap();
    fs::create_dir_all(&home).unwrap();
    fs::write(dotfiles.join("real.toml"), "a = 1\n").unwrap();
    symlink("../dotfiles/real.toml", home.join("app.toml")).unwrap();
    symlink(dotfiles.join("later.toml"), home.join("new.toml")).unwrap();
    let changed = set(&home.join("app.toml"), "a", &2.into()).unwrap();
    assert_eq!(changed.file, dotfiles.canonicalize().unwrap().join("real.toml"));
    assert!(fs::symlink_metadata(home.join("app.toml")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(dotfiles.join("real.toml")).unwrap(), "a = 2\n");
    set(&home.join("new.toml"), "a", &3.into()).unwrap();
    assert!(fs::symlink_metadata(home.join("new.toml")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(dotfiles.join("later.toml")).unwrap(), "a = 3\n");
    // Both ways to a file wait for one lock.
    assert_eq!(names(&home), ["app.toml", "new.toml"]);
    symlink("round.toml", home.join("round.toml")).unwrap();
    assert!(matches!(set(&home.join("round.toml"), "a", &1.into()), Err(Error::NoFile { .. })));
}

#[test]
fn a_file_that_would_stay_the_same_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, "a:   'x' # c\n").unwrap();
    let before = fs::metadata(&path).unwrap();
    let same = set(&path, "a", &"x".into()).unwrap();
    assert!(!same.written && !same.answer);
    assert!(!unset(&path, "b").unwrap().written);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    let missing = folder.path().join("missing.toml");
    assert!(!unset(&missing, "b").unwrap().written);
    assert!(!missing.exists());
}

#[test]
fn a_refusal_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, "{\"a\": 1}").unwrap();
    let editor = Editor::new(&path).unwrap().validator(|_| Err("not today".to_owned()));
    let refused = editor.set(&"a".parse().unwrap(), &2.into()).unwrap_err();
    assert_eq!(refused.to_string(), "not today");
    let failed = editor.change(|document| {
        document.set(&"a".parse()?, &5.into())?;
        document.set(&"a.b".parse()?, &5.into())
    });
    assert!(matches!(failed, Err(Error::NotBelow { .. })));
    for text in ["{", "\u{0}", "[1, 2"] {
        fs::write(&path, text).unwrap();
        assert!(set(&path, "b", &1.into()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(set(&path, "b", &1.into()), Err(Error::NotText)));
    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    assert!(matches!(set(&path, "b", &1.into()), Err(Error::NoFile { what: "read-only", .. })));
    assert_eq!(names(folder.path()), [".a.json.lock", "a.json"]);
    assert!(matches!(set(folder.path(), "a", &1.into()), Err(Error::UnknownFormat(_))));
    let folder_as_file = folder.path().join("f.toml");
    fs::create_dir(&folder_as_file).unwrap();
    assert!(matches!(set(&folder_as_file, "a", &1.into()), Err(Error::NoFile { what: "a folder", .. })));
    assert!(matches!(set(&folder.path().join("no/f.toml"), "a", &1.into()), Err(Error::Io { .. })));
}

#[test]
fn a_wait_ends_and_names_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    set(&path, "a", &1.into()).unwrap();
    let held = File::open(folder.path().join(".a.toml.lock")).unwrap();
    held.lock().unwrap();
    let editor = Editor::new(&path).unwrap().wait(Duration::from_millis(100));
    let asked = Instant::now();
    let timed_out = editor.set(&"a".parse().unwrap(), &2.into()).unwrap_err();
    assert!(
        matches!(timed_out, Error::TimedOut { .. }) && timed_out.to_string().contains(".a.toml.lock"),
        "{timed_out}"
    );
    assert!(asked.elapsed() >= Duration::from_millis(100));
    assert_eq!(get(&path, "a").unwrap(), Some(1.into()), "readers wait for nobody");
    drop(held);
    // Who waited in vain does not keep the lock that it got too late.
    let patient = Editor::new(&path).unwrap().wait(Duration::from_secs(20));
    assert!(patient.set(&"a".parse().unwrap(), &2.into()).unwrap().written);
}

#[test]
fn a_lock_file_that_was_removed_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let lock = folder.path().join(".a.toml.lock");
    set(&path, "a", &1.into()).unwrap();
    let held = File::open(&lock).unwrap();
    held.lock().unwrap();
    let waiting = {
        let path = path.clone();
        std::thread::spawn(move || set(&path, "b", &1.into()).unwrap())
    };
    std::thread::sleep(Duration::from_millis(100));
    fs::remove_file(&lock).unwrap();
    drop(held);
    assert!(waiting.join().unwrap().written);
    assert!(lock.exists(), "who got the lock of a removed file took the new one");
}

#[test]
fn leftovers_are_removed_and_only_they() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let left = [".a.toml.x7Yz12.lockkeeper-new", ".a.toml.qqqqqq.lockkeeper-new"];
    let others = [".a.toml.b.toml.x7Yz12.lockkeeper-new", ".b.toml.x7Yz12.lockkeeper-new", "a.toml.lockkeeper-new"];
    for name in left.iter().chain(&others) {
        fs::write(folder.path().join(name), "half").unwrap();
    }
    set(&path, "a", &1.into()).unwrap();
    let names = names(folder.path());
    assert!(left.iter().all(|name| !names.contains(&(*name).to_owned())), "{names:?}");
    assert!(others.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let victim = folder.path().join("victim");
    symlink(&victim, folder.path().join(".a.toml.lock")).unwrap();
    assert!(matches!(set(&path, "a", &1.into()), Err(Error::Io { .. })));
    assert!(!victim.exists() && !path.exists());
}

#[test]
fn a_program_that_takes_no_lock_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, "a = 1\n").unwrap();
    let editor = Editor::new(&path).unwrap();
    let changed = editor.change(|document| {
        fs::write(&path, "a = 1\nmine = true\n").unwrap();
        document.set(&"a".parse()?, &2.into())
    });
    assert!(matches!(changed, Err(Error::ChangedMeanwhile(_))), "{changed:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a = 1\nmine = true\n");
}

#[test]
fn a_copy_is_saved_with_what_was_written_meanwhile_and_a_broken_file_can_be_mended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, "# top\na = 1\nb = 2\n").unwrap();
    let editor = Editor::new(&path).unwrap();
    let base = editor.text().unwrap();
    set(&path, "c", &3.into()).unwrap();
    assert!(editor.save(&base, "# mine\na = 5\nb = 2\n").unwrap().written);
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\na = 5\nb = 2\nc = 3\n");
    let clash = editor.save(&base, "# top\na = 6\nb = 2\n").unwrap_err();
    assert!(matches!(clash, Error::Conflict(_)), "{clash}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "# mine\na = 5\nb = 2\nc = 3\n");
    fs::write(&path, "a = \n").unwrap();
    assert!(matches!(editor.save("a = \n", "a = ]\n"), Err(Error::Syntax { .. })));
    assert!(editor.save("a = \n", "a = 1\n").unwrap().written);
}
