//! Many writers at once, in threads and in processes, some of them killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lockkeeper_config_editor::{Document, Editor, Format, Key, Value, get, limits, set};

const FILES: [(&str, &str); 3] = [
    ("app.toml", "# top\nname = \"app\" # kept\n\n# numbers\n[n]\n# inside\nzero = 0 # zero\n"),
    ("app.yaml", "# top\nname: app # kept\n\n# numbers\nn:\n  # inside\n  zero: 0 # zero\n"),
    (
        "app.json",
        "// top\n{\n  \"name\": \"app\", // kept\n  // numbers\n  \"n\": {\n    // inside\n    \"zero\": 0 // zero\n  }\n}\n",
    ),
];
const COMMENTS: [&str; 5] = ["top", "kept", "numbers", "inside", "zero"];

/// Names the work of a process that a test here started: FILE WRITER FROM COUNT, or FILE WRITER for ever.
const WORK: &str = "CONFIG_EDITOR_WRITER";
const PATIENCE: Duration = Duration::from_secs(500);

fn deep() -> bool {
    std::env::var_os("LOCKKEEPER_DEEP").is_some()
}

fn key(writer: usize, number: usize) -> Key {
    Key::of(["n", &format!("w{writer}-k{number}")]).unwrap()
}

fn write(path: &Path, writer: usize, numbers: impl Iterator<Item = usize>) {
    let editor = Editor::new(path).unwrap().wait(PATIENCE);
    for number in numbers {
        let value = Value::from(i64::try_from(number).unwrap());
        assert!(editor.set(&key(writer, number), &value).unwrap().written);
    }
}

/// What the other tests run as a process of its own. Alone, it is a writer like any other.
#[test]
fn a_writer_writes_what_it_is_told() {
    let Ok(work) = std::env::var(WORK) else {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.yaml");
        write(&path, 0, 0..3);
        assert_eq!(get(&path, "n.w0-k2").unwrap(), Some(2.into()));
        return;
    };
    let mut parts = work.split('\n');
    let path = PathBuf::from(parts.next().unwrap());
    let numbers: Vec<usize> = parts.map(|part| part.parse().unwrap()).collect();
    match numbers[..] {
        [writer, count] => write(&path, writer, 0..count),
        // Until it is killed.
        [writer] => write(&path, writer, 0..),
        _ => panic!("{work}"),
    }
}

fn process(path: &Path, numbers: &[usize]) -> Child {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writers::a_writer_writes_what_it_is_told", "--test-threads=1"])
        .env(WORK, format!("{}\n{}", path.display(), numbers.join("\n")))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn whole(path: &Path) -> Document {
    let text = fs::read_to_string(path).unwrap();
    let document = Document::parse(Format::of(path).unwrap(), &text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for comment in COMMENTS {
        assert!(text.contains(comment), "{comment} is gone from {text}");
    }
    document
}

/// The scenario "Concurrent config saves": two threads save at once.
#[test]
fn concurrent_config_saves() {
    for (name, text) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let (entered, inside) = mpsc::channel();
        let (leave, stay) = mpsc::channel::<()>();
        let (told, second_is_inside) = mpsc::channel();
        let first = {
            let path = path.clone();
            std::thread::spawn(move || {
                Editor::new(path).unwrap().change(|document| {
                    entered.send(()).unwrap();
                    stay.recv().unwrap();
                    document.set(&"n.first".parse()?, &1.into())
                })
            })
        };
        inside.recv().unwrap();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                Editor::new(path).unwrap().change(|document| {
                    // It sees what the first has saved, before it applies its own.
                    told.send(document.get(&"n.first".parse()?).cloned()).unwrap();
                    document.set(&"n.second".parse()?, &2.into())
                })
            })
        };
        let early = second_is_inside.recv_timeout(Duration::from_millis(200));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "the second waits for the first");
        leave.send(()).unwrap();
        assert!(first.join().unwrap().unwrap().written);
        assert_eq!(second_is_inside.recv().unwrap(), Some(1.into()));
        assert!(second.join().unwrap().unwrap().written);
        let document = whole(&path);
        assert_eq!(document.get(&"n.first".parse().unwrap()), Some(&1.into()));
        assert_eq!(document.get(&"n.second".parse().unwrap()), Some(&2.into()));
    }
}

/// The same scenario, among processes: 50 writers, each with keys of its own.
#[test]
fn concurrent_config_saves_of_processes() {
    let (writers, keys) = if deep() { (50, 100) } else { (50, 10) };
    let formats = if deep() { &FILES[..] } else { &FILES[1..2] };
    for (name, text) in formats {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let began = Instant::now();
        let children: Vec<Child> = (0..writers).map(|writer| process(&path, &[writer, keys])).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let took = began.elapsed();
        let document = whole(&path);
        for (writer, number) in (0..writers).flat_map(|writer| (0..keys).map(move |number| (writer, number))) {
            let value = Value::from(i64::try_from(number).unwrap());
            assert_eq!(document.get(&key(writer, number)), Some(&value), "writer {writer}, key {number}");
        }
        println!("{name}: {writers} processes, {} keys, {:.1} s", writers * keys, took.as_secs_f64());
    }
}

#[test]
fn killed_writers_leave_a_whole_file_and_block_nobody() {
    let rounds = if deep() { 150 } else { 12 };
    for (name, text) in FILES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let mut seen = 0;
        for round in 0..rounds {
            let mut children = [process(&path, &[2 * round]), process(&path, &[2 * round + 1])];
            // Once both write, at another moment each time: while waiting, in the middle of a write, at its end.
            let began = Instant::now();
            let wrote =
                |writer: usize| fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("w{writer}-k0")));
            while !(wrote(2 * round) && wrote(2 * round + 1)) {
                assert!(began.elapsed() < Duration::from_secs(60), "a writer does not come to write");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(700 * (round as u64 * 7 % 40)));
            for child in &mut children {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            let document = whole(&path);
            let Some(Value::Map(fields)) = document.get(&"n".parse().unwrap()) else { panic!("{name}") };
            assert!(fields.len() >= seen + 2, "keys were lost in round {round}");
            // Of each writer the first so many keys are there, without a gap.
            for writer in [2 * round, 2 * round + 1] {
                let of = format!("w{writer}-k");
                let count = fields.iter().filter(|(name, _)| name.starts_with(&of)).count();
                assert!((0..count).all(|number| document.get(&key(writer, number)).is_some()), "{name} {writer}");
            }
            let asked = Instant::now();
            set(&path, &format!("n.after-{round}"), &1.into()).unwrap();
            assert!(asked.elapsed() < limits::WAIT_DEFAULT, "somebody dead held the lock");
            let left = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, 2, "the file and its lock are all that is left");
            seen = fields.len();
        }
    }
}
