//! What people and programs see: tables with colour on a terminal, plain columns in a pipe, JSON on demand.

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle, presets};
use lockkeeper_core::text::is_unprintable;
use lockkeeper_core::time::Millis;
use lockkeeper_wire::answer::{LockView, Refused};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

/// How a line is printed that is the answer to the question.
macro_rules! say {
    ($($part:tt)*) => {{
        let mut line = $crate::output::printable(&format!($($part)*)).into_owned();
        line.push('\n');
        $crate::output::write(&mut anstream::stdout(), line.as_bytes());
    }};
}
pub(crate) use say;

/// Something that was to be told is lost.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// A write has failed: nothing more can be told.
static OVER: AtomicBool = AtomicBool::new(false);

/// Writes an answer, or takes note that it could not be written.
pub(crate) fn write(out: &mut impl Write, bytes: &[u8]) {
    let written = out.write_all(bytes).and_then(|()| out.flush());
    if written.is_err() {
        OVER.store(true, Ordering::Relaxed);
    }
    match written {
        // Whoever closed the pipe has read enough, and who closed the output wants nothing.
        Err(error) if error.kind() != ErrorKind::BrokenPipe && Errno::from_io_error(&error) != Some(Errno::BADF) => {
            UNTOLD.store(true, Ordering::Relaxed);
        }
        Ok(()) | Err(_) => {}
    }
}

/// Whether an answer could not be written, for another reason than that nobody wants to read it.
pub(crate) fn is_untold() -> bool {
    UNTOLD.load(Ordering::Relaxed)
}

/// Whether nobody will read what is written from here on: a command that goes on by itself ends then. Looks at the pipe, too, so
/// that it need not wait for something to write.
pub(crate) fn is_over() -> bool {
    let out = std::io::stdout();
    let mut asked = [PollFd::new(&out, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = poll(&mut asked, Some(&now)).is_ok()
        && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    gone || OVER.load(Ordering::Relaxed)
}

/// How a line is printed that is only about the answer.
macro_rules! note {
    ($($part:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), "{}", $crate::output::printable(&format!($($part)*)));
    }};
}
pub(crate) use note;

/// Frames around every column, and a line below the titles.
const FRAMED: TableStyle = TableStyle::new()
    .top_border(LineStyle::new('┌', '─', '┬', '┐'))
    .header_lines(ContentLineStyle::new('│', '│', '│'))
    .header_separator(LineStyle::new('├', '─', '┼', '┤'))
    .content_lines(ContentLineStyle::new('│', '│', '│'))
    .bottom_border(LineStyle::new('└', '─', '┴', '┘'));

/// Columns that are never broken, however narrow the terminal is.
const WHOLE_COLUMNS: [&str; 3] = ["ID", "Lines", "Token"];

const BOLD: Style = Style::new().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// The colours of this program.
const OWN_CODES: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"];

/// What may be shown on a terminal: names and texts come from files and from others, and must not move its cursor, set its
/// title or turn letters around.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unprintable(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let own = OWN_CODES.iter().find(|code| rest.starts_with(**code));
        let length = own.map_or(first.len_utf8(), |code| code.len());
        if own.is_some() || first == '\n' || !is_unprintable(first) {
            shown.push_str(&rest[..length]);
        } else {
            shown.extend(first.escape_unicode());
        }
        rest = &rest[length..];
    }
    Cow::Owned(shown)
}

pub(crate) fn json(value: &impl Serialize) {
    let mut line = harmless_json(serde_json::to_string(value).expect("answers have a form"));
    line.push('\n');
    write(&mut std::io::stdout(), line.as_bytes());
}

/// The same JSON, in which what strangers wrote can't play with a terminal either.
fn harmless_json(text: String) -> String {
    use std::fmt::Write as _;
    if text.is_ascii() || !text.chars().any(is_unprintable) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) && !c.is_ascii() {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A refusal, on the error output: the word, what happened, what to do.
pub(crate) fn refused(refused: &Refused) {
    note!("{RED}{}{RED:#}: {}", refused.error, refused.message);
    for hint in refused.hint.iter().flat_map(|hint| hint.lines()) {
        note!("{DIM}Hint:{DIM:#} {hint}");
    }
}

/// A table: with frames on a terminal, plain columns elsewhere.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let rows: Vec<[String; N]> = rows.into_iter().collect();
    let mut table = Table::new();
    let framed = std::io::stdout().is_terminal() || std::env::var_os("LOCKKEEPER_TABLES").is_some();
    if framed {
        table.load_style(FRAMED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if let Some(width) = columns() {
            table.set_width(width);
        }
        table.set_header(titles);
        // What is copied from a table stays in one piece.
        for (column, title) in table.column_iter_mut().zip(titles) {
            if WHOLE_COLUMNS.contains(&title) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    } else {
        table.load_style(presets::NOTHING);
        table.set_header(titles.map(str::to_uppercase));
    }
    table.add_rows(rows);
    let text = table.to_string();
    for line in text.lines() {
        // Plain columns begin at the edge.
        let line = if framed { line } else { line.strip_prefix(' ').unwrap_or(line) };
        say!("{}", line.trim_end());
    }
}

/// The width of the terminal.
fn columns() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|columns| *columns >= 40)
}

/// The lines of a lock, as a person writes them.
pub(crate) fn lines(start: Option<u32>, end: Option<u32>) -> String {
    match (start, end) {
        (None, _) => "all".to_owned(),
        (Some(start), None) => format!("{start}-"),
        (Some(start), Some(end)) if start == end => start.to_string(),
        (Some(start), Some(end)) => format!("{start}-{end}"),
    }
}

/// A path with its lines, as a command takes it.
pub(crate) fn target(path: &str, start: Option<u32>, end: Option<u32>) -> String {
    if start.is_none() { path.to_owned() } else { format!("{path}:{}", lines(start, end)) }
}

/// A moment in the user's own time zone: today only the time.
pub(crate) fn moment(rfc3339: &str) -> String {
    let Ok(timestamp) = rfc3339.parse::<jiff::Timestamp>() else { return rfc3339.to_owned() };
    let zoned = timestamp.to_zoned(jiff::tz::TimeZone::system());
    let today = jiff::Zoned::now().date() == zoned.date();
    zoned.strftime(if today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
}

pub(crate) fn millis(ms: u64) -> String {
    Millis(ms).to_string()
}

/// To the nearest second, for what was asked for a moment ago: five minutes are not 4 min 59 s.
pub(crate) fn rounded(ms: u64) -> Millis {
    Millis(if ms < 1000 { ms } else { ms.saturating_add(500) / 1000 * 1000 })
}

pub(crate) fn bold(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

/// What whoever works under a pause should know.
pub(crate) fn paused(lock: &LockView) -> String {
    let LockView { owner, intention, file_path, .. } = lock;
    format!("Paused by {owner}: {intention} ({file_path}); stop at the next good moment")
}

/// `1 claim`, `2 claims`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_can_not_play_with_a_terminal() {
        assert_eq!(printable("plain, even \u{e4} and\ntwo lines"), "plain, even \u{e4} and\ntwo lines");
        assert_eq!(printable("a\x1b]0;title\x07b\u{202e}c"), "a\\u{1b}]0;title\\u{7}b\\u{202e}c");
        let value = serde_json::json!({ "a": "\u{9b}2J \u{202e}\u{e0001} \u{e4}" });
        let shown = harmless_json(value.to_string());
        assert_eq!(shown, r#"{"a":"\u009b2J \u202e\udb40\udc01 \u00e4"}"#.replace("\\u00e4", "\u{e4}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(printable("\x1b[1mours\x1b[0m \x1b[2Jtheirs"), "\x1b[1mours\x1b[0m \\u{1b}[2Jtheirs");
    }
}
