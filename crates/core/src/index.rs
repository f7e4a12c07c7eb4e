//! Finds what a target may conflict with, in the logarithm of the number of keys and of the spans in one file.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::key::{Cover, Key, KeyKind, Target};
use crate::mode::Mode;
use crate::planted::{self, Bug};
use crate::span::Span;
use crate::span_tree::SpanTree;

/// Targets with the id of whoever has or wants them. Shared and exclusive ones are kept apart, so that a reader does
/// not walk past a crowd of readers to find out that there is no writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConflictIndex {
    exclusive: ByKind,
    shared: ByKind,
}

#[derive(Clone, Debug, Default)]
struct ByKind {
    paths: Side,
    logical: Side,
}

#[derive(Clone, Debug, Default)]
struct Side {
    trees: BTreeMap<Arc<str>, SpanTree>,
    /// How many of the keys cover others; mostly none, and then nobody looks for them.
    covering: usize,
}

type Visit<'a> = &'a mut dyn FnMut(Span, u64) -> ControlFlow<()>;

impl ConflictIndex {
    pub(crate) fn insert(&mut self, target: &Target, mode: Mode, id: u64) {
        let side = self.side_mut(mode, &target.key);
        match side.trees.get_mut(target.key.as_str()) {
            Some(tree) => tree.insert(target.span, id),
            None => {
                side.trees.entry(target.key.shared_text()).or_default().insert(target.span, id);
                side.covering += usize::from(target.key.cover() != Cover::One);
            }
        }
    }

    pub(crate) fn remove(&mut self, target: &Target, mode: Mode, id: u64) {
        let side = self.side_mut(mode, &target.key);
        let tree = side.trees.get_mut(target.key.as_str()).expect("what is removed was inserted");
        assert!(tree.remove(target.span, id), "what is removed was inserted");
        if tree.is_empty() {
            side.trees.remove(target.key.as_str());
            side.covering -= usize::from(target.key.cover() != Cover::One);
        }
    }

    /// Visits whatever overlaps the target in a mode that conflicts with `mode`, and its lines, until told to stop.
    pub(crate) fn conflicting(
        &self,
        target: &Target,
        mode: Mode,
        mut visit: impl FnMut(Span, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let visit: Visit<'_> = &mut visit;
        overlapping(self.exclusive.side(&target.key), target, visit)?;
        match mode {
            Mode::Shared if !planted::is(Bug::SharedRefused) => ControlFlow::Continue(()),
            Mode::Exclusive if planted::is(Bug::SharedOverlooked) => ControlFlow::Continue(()),
            Mode::Shared | Mode::Exclusive => overlapping(self.shared.side(&target.key), target, visit),
        }
    }

    /// Every id, in the order of keys and then of first lines.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = u64> {
        let paths = merge(&self.exclusive.paths.trees, &self.shared.paths.trees);
        paths.chain(merge(&self.exclusive.logical.trees, &self.shared.logical.trees))
    }

    fn side_mut(&mut self, mode: Mode, key: &Key) -> &mut Side {
        let by_kind = match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        };
        match key.kind() {
            KeyKind::Path => &mut by_kind.paths,
            KeyKind::Logical => &mut by_kind.logical,
        }
    }
}

impl ByKind {
    fn side(&self, key: &Key) -> &Side {
        match key.kind() {
            KeyKind::Path => &self.paths,
            KeyKind::Logical => &self.logical,
        }
    }
}

/// Two tables as one, in the order of keys; of one key, in the order of first lines.
fn merge<'a>(
    one: &'a BTreeMap<Arc<str>, SpanTree>,
    other: &'a BTreeMap<Arc<str>, SpanTree>,
) -> impl Iterator<Item = u64> + 'a {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let trees = std::iter::from_fn(move || {
        let order = match (one.peek(), other.peek()) {
            (Some((first, _)), Some((second, _))) => first.cmp(second),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (one.next(), None),
            Ordering::Greater => (other.next(), None),
            Ordering::Equal => (one.next(), other.next()),
        })
    });
    trees.flat_map(|(first, second)| {
        let mut of_key: Vec<(Span, u64)> = Vec::new();
        for (_, tree) in first.into_iter().chain(second) {
            let _ = tree.overlapping(Span::WHOLE, &mut |span, id| {
                of_key.push((span, id));
                ControlFlow::Continue(())
            });
        }
        of_key.sort_unstable();
        of_key.into_iter().map(|(_, id)| id)
    })
}

/// Looks at the key itself, at the keys that cover it, and at those that it covers.
fn overlapping(side: &Side, target: &Target, visit: Visit<'_>) -> ControlFlow<()> {
    let key = &target.key;
    let mut look = |text: &str| match side.trees.get(text) {
        Some(tree) => tree.overlapping(target.span, &mut |span, id| visit(span, id)),
        None => ControlFlow::Continue(()),
    };
    if key.cover() == Cover::One {
        look(key.as_str())?;
    }
    if side.covering > 0 {
        for covering in covering(key) {
            look(&covering)?;
        }
    }
    match key.cover() {
        Cover::One => ControlFlow::Continue(()),
        Cover::Children | Cover::Tree if planted::is(Bug::TreeOverlooked) => ControlFlow::Continue(()),
        Cover::Children | Cover::Tree => below(&side.trees, target, visit),
    }
}

/// The keys with stars that reach at least a part of what `key` reaches, other than those below it.
pub(crate) fn covering(key: &Key) -> Vec<String> {
    if key.kind() == KeyKind::Logical && !key.has_tree() {
        return Vec::new();
    }
    let own_stem = match key.cover() {
        Cover::One => key.as_str(),
        Cover::Children | Cover::Tree => key.stem(),
    };
    let mut found = Vec::new();
    // Every place where a stem may end: the start of a path, behind a prefix's colon, behind each slash.
    let starts_path = (key.kind() == KeyKind::Path).then_some(0);
    let breaks = own_stem.char_indices().filter_map(|(at, c)| match (c, key.kind()) {
        ('/', _) | (':', KeyKind::Logical) => Some(at + 1),
        _ => None,
    });
    for end in starts_path.into_iter().chain(breaks) {
        let (stem, rest) = own_stem.split_at(end);
        match key.kind() {
            KeyKind::Logical => found.push(format!("{stem}*")),
            KeyKind::Path => {
                found.push(format!("{stem}**"));
                let one_level = match key.cover() {
                    Cover::One => !rest.contains('/'),
                    // Of the one-level keys that are not below it, a key with stars meets only the one beside it.
                    Cover::Children | Cover::Tree => rest.is_empty(),
                };
                if one_level {
                    found.push(format!("{stem}*"));
                }
            }
        }
    }
    found
}

/// Visits what lies below a key with stars. The key itself and its neighbour with the same stem were looked at.
fn below(side: &BTreeMap<Arc<str>, SpanTree>, target: &Target, visit: Visit<'_>) -> ControlFlow<()> {
    let stem = target.key.stem();
    let mut from: Bound<String> = Bound::Included(stem.to_owned());
    loop {
        let range = (from.as_ref().map(String::as_str), Bound::<&str>::Unbounded);
        let mut skip_to = None;
        for (text, tree) in side.range::<str, _>(range) {
            let Some(rest) = text.strip_prefix(stem) else { break };
            if matches!(rest, "" | "*" | "**") {
                continue;
            }
            if target.key.cover() == Cover::Children
                && let Some(slash) = rest.find('/')
            {
                // Deeper than one level: go on behind that whole folder ('0' follows '/').
                skip_to = Some(format!("{stem}{}0", &rest[..slash]));
                break;
            }
            tree.overlapping(target.span, &mut |span, id| visit(span, id))?;
        }
        match skip_to {
            Some(next) => from = Bound::Included(next),
            None => return ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn target() -> impl Strategy<Value = Target> {
        let path = "(a|b|ab)(/(a|b|a0)){0,2}(/\\*|/\\*\\*)?|\\*|\\*\\*";
        let flag = "flag:(a|b)(/(a|b)){0,2}(/\\*)?|flag:\\*|api:GET /(a/b)?";
        (prop_oneof![3 => path, 1 => flag], 1..6u32, 0..4u32).prop_map(|(text, start, more)| {
            let key = Key::parse(&text).expect("the pattern makes keys");
            let lines = Span::between(start, start + more);
            Target::new(key.clone(), lines).unwrap_or_else(|_| Target::new(key, Span::WHOLE).expect("whole"))
        })
    }

    fn mode() -> impl Strategy<Value = Mode> {
        prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn the_index_finds_exactly_what_the_rule_says(
            held in prop::collection::vec((target(), mode()), 0..30), probe in target(), asked in mode(), gone in 0..30usize
        ) {
            let mut index = ConflictIndex::default();
            for (id, (target, mode)) in held.iter().enumerate() {
                index.insert(target, *mode, id as u64);
            }
            if let Some((target, mode)) = held.get(gone) {
                index.remove(target, *mode, gone as u64);
            }
            let mut found = BTreeSet::new();
            let _ = index.conflicting(&probe, asked, |_, id| {
                assert!(found.insert(id), "visited twice: {id}");
                ControlFlow::Continue(())
            });
            let expected: BTreeSet<u64> = held.iter().enumerate()
                .filter(|(id, (target, mode))| *id != gone && mode.conflicts(asked) && target.overlaps(&probe))
                .map(|(id, _)| id as u64).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
