//! Packages that no dependency orders must neither write the same paths nor lock the same things.

use std::collections::HashMap;
use std::rc::Rc;

use lockkeeper_core::key::{Cover, Key};

use crate::collide::{Claims, Meeting};
use crate::document::INTEGRATION;
use crate::draft::{Draft, Entry};
use crate::glob::Glob;
use crate::keys::Held;
use crate::limits::SCOPE_STEPS_MAX;
use crate::meet::{Exhausted, Steps, common_path};
use crate::order::Order;
use crate::problem::{Check, Place, Problems};

const ORDER_HINT: &str = "let one depend on the other, or divide what they do";

/// The scopes of one package that matter here.
#[derive(Debug, Default)]
pub(crate) struct Writes<'t> {
    allow: Vec<(Rc<Glob>, Entry<'t>)>,
    deny: Vec<Rc<Glob>>,
}

/// Reads the globs of all scopes, and tells which of them are none.
pub(crate) fn read_scopes<'t>(draft: &Draft<'t>, problems: &mut Problems) -> Vec<Writes<'t>> {
    // Aliases can say one text a million times.
    let mut known: HashMap<&str, Rc<Glob>> = HashMap::new();
    let mut read = |entry: &Entry<'t>| {
        if let Some(glob) = known.get(entry.text) {
            return Some((glob.clone(), *entry));
        }
        match Glob::parse(entry.text) {
            Ok(glob) => {
                let glob = known.entry(entry.text).or_insert(Rc::new(glob));
                Some((glob.clone(), *entry))
            }
            Err(error) => {
                let path = entry.path.to_string();
                let told = problems.add(Check::Scope, entry.place, path, entry.text, error.to_string());
                if let Some(hint) = error.hint {
                    told.hint(hint);
                }
                None
            }
        }
    };
    let mut scopes = Vec::with_capacity(draft.packages.len());
    for package in &draft.packages {
        let allow = package.write_allow.iter().filter_map(&mut read).collect();
        package.read_allow.iter().for_each(|entry| drop(read(entry)));
        let deny = package.deny.iter().filter_map(&mut read).map(|(glob, _)| glob).collect();
        scopes.push(Writes { allow, deny });
    }
    scopes
}

/// Two packages overlap when there is a path that a `write_allow` of each takes in and no `deny` of either takes out.
pub(crate) fn check_scopes(draft: &Draft<'_>, order: &Order, scopes: &[Writes<'_>], problems: &mut Problems) {
    let mut steps = Steps::new(SCOPE_STEPS_MAX);
    if find_scopes(draft, order, scopes, &mut steps, problems) == Err(Exhausted) {
        let message = format!(
            "the scopes have too many stars to be compared with each other; {SCOPE_STEPS_MAX} steps were not enough"
        );
        let place = scopes.iter().flat_map(|scope| &scope.allow).map(|(_, entry)| entry.place).next();
        problems
            .add(Check::ScopeOverlap, place.unwrap_or(Place::START), "packages", "", message)
            .hint("begin the entries of write_allow with the folders that they mean");
    }
}

fn find_scopes(
    draft: &Draft<'_>,
    order: &Order,
    scopes: &[Writes<'_>],
    steps: &mut Steps,
    problems: &mut Problems,
) -> Result<(), Exhausted> {
    let each = (0..order.len())
        .filter(|position| !is_exempt(draft, order, *position))
        .flat_map(|position| scopes[order.sequence[position]].allow.iter().map(move |(glob, _)| (position, &**glob)));
    let claims = Claims::gather(
        each,
        |glob| (glob.anchor(), !glob.is_literal()),
        |one, other| common_path(one, other, &[], steps).map(|path| path.is_some()),
    )?;
    let mut pairs = Pairs::new(order, problems.room());
    let mut outcome = Ok(());
    claims.meetings(order, |meeting| {
        let packages = [meeting.earlier, meeting.later].map(|position| &scopes[order.sequence[position]]);
        // Almost no package denies anything, and then it is decided already.
        let certain = packages.iter().all(|scope| scope.deny.is_empty());
        if outcome.is_err() {
            return;
        }
        if certain && !pairs.has_room() {
            pairs.count(meeting);
            return;
        }
        let found_with = certain.then(|| claims.what(meeting.claim));
        match shared_path(packages, found_with, steps) {
            Ok(Some(found)) => pairs.add(meeting, found),
            Ok(None) => {}
            Err(Exhausted) => outcome = Err(Exhausted),
        }
    });
    let left_out = pairs.left_out;
    for (first, second, swapped, shared) in pairs.in_file_order() {
        let (mine, theirs) = if swapped { (shared.one, shared.other) } else { (shared.other, shared.one) };
        let (one, other) = (draft.name(first), draft.name(second));
        let same = if mine.text == theirs.text {
            format!("line {}", theirs.place.line)
        } else {
            format!("{} in line {}", theirs.text, theirs.place.line)
        };
        let message = format!(
            "{other} and {one} ({same}) may both write {}, and no dependency orders them: '{}'",
            shared.path, mine.text
        );
        problems
            .add(Check::ScopeOverlap, mine.place, mine.path.to_string(), mine.text, message)
            .hint(format!("{ORDER_HINT}: depends_on: [{one}]"));
    }
    problems.leave_out(left_out);
    outcome
}

/// A path that two packages may both write.
struct Shared<'t> {
    one: Entry<'t>,
    other: Entry<'t>,
    path: String,
}

/// If it is known with which glob of the second package they meet, only that one is looked at.
fn shared_path<'t>(
    scopes: [&Writes<'t>; 2],
    found_with: Option<&Glob>,
    steps: &mut Steps,
) -> Result<Option<Shared<'t>>, Exhausted> {
    let denied: Vec<&Glob> = scopes.iter().flat_map(|scope| &scope.deny).map(|glob| &**glob).collect();
    let others = || scopes[1].allow.iter().filter(|(glob, _)| found_with.is_none_or(|found| *found == **glob));
    for (one, entry) in &scopes[0].allow {
        for (other, other_entry) in others() {
            if let Some(path) = common_path(one, other, &denied, steps)? {
                return Ok(Some(Shared { one: *entry, other: *other_entry, path }));
            }
        }
    }
    Ok(None)
}

pub(crate) fn check_locks(draft: &Draft<'_>, order: &Order, locks: &[Vec<Held<'_>>], problems: &mut Problems) {
    let each = (0..order.len())
        .filter(|position| !is_exempt(draft, order, *position))
        .flat_map(|position| locks[order.sequence[position]].iter().map(move |lock| (position, &lock.key)));
    let claims = lock_claims(each);
    let mut pairs = Pairs::new(order, problems.room());
    claims.meetings(order, |meeting| {
        if !pairs.has_room() {
            pairs.count(meeting);
            return;
        }
        let key = claims.what(meeting.claim);
        let of = |position: usize| &locks[order.sequence[position]];
        let later = of(meeting.later).iter().find(|lock| lock.key == *key);
        let earlier = of(meeting.earlier).iter().find(|lock| lock.key.overlaps(key));
        let (Some(later), Some(earlier)) = (later, earlier) else {
            unreachable!("packages meet in locks that they have");
        };
        pairs.add(meeting, (earlier, later));
    });
    let left_out = pairs.left_out;
    for (first, second, swapped, (earlier, later)) in pairs.in_file_order() {
        let (mine, theirs) = if swapped { (earlier, later) } else { (later, earlier) };
        let (one, other) = (draft.name(first), draft.name(second));
        let message = format!(
            "{other} locks {} and {one} locks {} (line {}), and no dependency orders them",
            mine.key, theirs.key, theirs.entry.place.line
        );
        problems
            .add(Check::LockOverlap, mine.entry.place, mine.entry.path.to_string(), mine.entry.text, message)
            .hint(format!("{ORDER_HINT}: depends_on: [{one}]"));
    }
    problems.leave_out(left_out);
}

/// Claims on keys, with core's own rule on which of them overlap.
pub(crate) fn lock_claims<'k>(each: impl Iterator<Item = (usize, &'k Key)>) -> Claims<'k, Key> {
    let claims = Claims::gather(
        each,
        |key| match key.cover() {
            Cover::One => (key.as_str(), false),
            Cover::Children | Cover::Tree => (key.as_str().trim_end_matches('*'), true),
        },
        |one, other| Ok(one.overlaps(other)),
    );
    claims.expect("to compare keys takes no steps that are counted")
}

fn is_exempt(draft: &Draft<'_>, order: &Order, position: usize) -> bool {
    draft.packages[order.sequence[position]].id.is_some_and(|id| id.text == INTEGRATION)
}

/// Pairs of packages up to a bound, the rest as a number.
struct Pairs<'o, F> {
    order: &'o Order,
    room: usize,
    found: Vec<(Meeting, F)>,
    left_out: usize,
}

impl<F> Pairs<'_, F> {
    fn new(order: &Order, room: usize) -> Pairs<'_, F> {
        Pairs { order, room, found: Vec::new(), left_out: 0 }
    }

    fn has_room(&self) -> bool {
        self.found.len() < self.room
    }

    fn add(&mut self, meeting: Meeting, what: F) {
        if self.has_room() {
            self.found.push((meeting, what));
        } else {
            self.count(meeting);
        }
    }

    fn count(&mut self, _: Meeting) {
        self.left_out += 1;
    }

    /// The earlier and the later package of the file, and whether that turns the order of dependencies around.
    fn in_file_order(self) -> impl Iterator<Item = (usize, usize, bool, F)> {
        let mut pairs: Vec<(usize, usize, bool, F)> = Vec::with_capacity(self.found.len());
        for (meeting, what) in self.found {
            let (earlier, later) = (self.order.sequence[meeting.earlier], self.order.sequence[meeting.later]);
            pairs.push((earlier.min(later), earlier.max(later), earlier > later, what));
        }
        pairs.sort_by_key(|(first, second, ..)| (*second, *first));
        pairs.into_iter()
    }
}
