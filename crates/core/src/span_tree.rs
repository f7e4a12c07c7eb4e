//! Spans of one file, in a balanced tree that knows the furthest end below each node: what overlaps a span is found
//! without looking at what does not, however many spans there are and however they overlap each other.

use std::ops::ControlFlow;

use crate::planted::{self, Bug};
use crate::span::Span;

/// A set of (span, id) pairs. A treap whose priorities come from the pairs, so that equal contents have equal shapes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanTree {
    nodes: Vec<Node>,
    root: Link,
    free: Link,
    len: usize,
}

/// Index of a node plus one; zero is none. Half the size of an `Option<usize>`.
type Link = u32;

#[derive(Clone, Debug)]
struct Node {
    span: Span,
    id: u64,
    /// The furthest end in this subtree.
    reach: u32,
    left: Link,
    right: Link,
}

impl SpanTree {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, span: Span, id: u64) {
        let node = Node { span, id, reach: span.end(), left: 0, right: 0 };
        let link = if self.free == 0 {
            self.nodes.push(node);
            u32::try_from(self.nodes.len()).expect("limits keep a file below four billion spans")
        } else {
            let link = self.free;
            self.free = self.node(link).left;
            self.nodes[link as usize - 1] = node;
            link
        };
        let (before, after) = self.split(self.root, (span, id));
        let before = self.merge(before, link);
        self.root = self.merge(before, after);
        self.len += 1;
    }

    /// Takes a pair out; `false` if it was not there.
    pub(crate) fn remove(&mut self, span: Span, id: u64) -> bool {
        let (before, rest) = self.split(self.root, (span, id));
        let (found, after) = self.split(rest, (span, id + 1));
        if found != 0 {
            assert_eq!((self.node(found).left, self.node(found).right), (0, 0), "one pair between two neighbours");
            self.node_mut(found).left = self.free;
            self.free = found;
            self.len -= 1;
        }
        self.root = self.merge(before, after);
        found != 0
    }

    /// Visits what overlaps `span`, in the order of the first lines, until told to stop.
    pub(crate) fn overlapping(
        &self,
        span: Span,
        visit: &mut impl FnMut(Span, u64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.visit(self.root, span, visit)
    }

    fn visit(&self, at: Link, span: Span, visit: &mut impl FnMut(Span, u64) -> ControlFlow<()>) -> ControlFlow<()> {
        if at == 0 || self.node(at).reach < span.start() {
            return ControlFlow::Continue(());
        }
        let node = self.node(at);
        self.visit(node.left, span, visit)?;
        if node.span.start() > span.end() {
            return ControlFlow::Continue(());
        }
        let touches_only = node.span.end() == span.start() && node.span.start() < span.start();
        if node.span.overlaps(span) && !(touches_only && planted::is(Bug::SpanEndOpen)) {
            visit(node.span, node.id)?;
        }
        self.visit(node.right, span, visit)
    }

    fn node(&self, link: Link) -> &Node {
        &self.nodes[link as usize - 1]
    }

    fn node_mut(&mut self, link: Link) -> &mut Node {
        &mut self.nodes[link as usize - 1]
    }

    fn reach(&self, link: Link) -> u32 {
        if link == 0 { 0 } else { self.node(link).reach }
    }

    fn refresh(&mut self, link: Link) {
        let node = self.node(link);
        let reach = node.span.end().max(self.reach(node.left)).max(self.reach(node.right));
        self.node_mut(link).reach = reach;
    }

    /// Splits into what is less than `bound` and the rest.
    fn split(&mut self, at: Link, bound: (Span, u64)) -> (Link, Link) {
        if at == 0 {
            return (0, 0);
        }
        if (self.node(at).span, self.node(at).id) < bound {
            let (middle, after) = self.split(self.node(at).right, bound);
            self.node_mut(at).right = middle;
            self.refresh(at);
            (at, after)
        } else {
            let (before, middle) = self.split(self.node(at).left, bound);
            self.node_mut(at).left = middle;
            self.refresh(at);
            (before, at)
        }
    }

    /// Joins two trees of which every pair of the first is less than every pair of the second.
    fn merge(&mut self, one: Link, other: Link) -> Link {
        if one == 0 || other == 0 {
            return one.max(other);
        }
        if self.node(one).priority() >= self.node(other).priority() {
            let joined = self.merge(self.node(one).right, other);
            self.node_mut(one).right = joined;
            self.refresh(one);
            one
        } else {
            let joined = self.merge(one, self.node(other).left);
            self.node_mut(other).left = joined;
            self.refresh(other);
            other
        }
    }
}

impl Node {
    /// A well-mixed number (the finaliser of splitmix64), so that neither ids in sequence nor hundreds of spans with one id make
    /// a list of the tree.
    fn priority(&self) -> u64 {
        let span = u64::from(self.span.start()) << 32 | u64::from(self.span.end());
        let mut mixed =
            self.id.wrapping_add(span.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn found(tree: &SpanTree, span: Span) -> BTreeSet<(Span, u64)> {
        let mut all = BTreeSet::new();
        let _ = tree.overlapping(span, &mut |span, id| {
            assert!(all.insert((span, id)), "visited twice");
            ControlFlow::Continue(())
        });
        all
    }

    fn span() -> impl Strategy<Value = Span> {
        (1..40u32, 0..12u32).prop_map(|(start, more)| Span::between(start, start + more))
    }

    proptest! {
        #[test]
        fn the_tree_finds_what_a_plain_scan_finds(
            steps in prop::collection::vec((any::<bool>(), span(), 0..24u64), 1..200), probe in span()
        ) {
            let mut tree = SpanTree::default();
            let mut plain: BTreeSet<(Span, u64)> = BTreeSet::new();
            for (insert, span, id) in steps {
                if insert && plain.insert((span, id)) {
                    tree.insert(span, id);
                } else if !insert {
                    prop_assert_eq!(tree.remove(span, id), plain.remove(&(span, id)));
                }
                let expected: BTreeSet<_> = plain.iter().copied().filter(|(at, _)| at.overlaps(probe)).collect();
                prop_assert_eq!(found(&tree, probe), expected);
                prop_assert_eq!(tree.is_empty(), plain.is_empty());
            }
        }
    }

    #[test]
    fn a_hundred_thousand_spans_in_a_row_make_no_deep_tree() {
        fn depth(tree: &SpanTree, at: Link) -> usize {
            if at == 0 { 0 } else { 1 + depth(tree, tree.node(at).left).max(depth(tree, tree.node(at).right)) }
        }
        let mut tree = SpanTree::default();
        for line in 1..=100_000 {
            tree.insert(Span::between(line, line), u64::from(line));
        }
        assert!(depth(&tree, tree.root) < 64, "{}", depth(&tree, tree.root));
        assert_eq!(found(&tree, Span::between(5000, 5000)).len(), 1);
        // All spans of one who waits have one id.
        let mut tree = SpanTree::default();
        for (line, id) in (1..=10_000).flat_map(|line| [(line, 1), (line, 2)]) {
            tree.insert(Span::between(line, line + 500), id);
        }
        assert!(depth(&tree, tree.root) < 64, "{}", depth(&tree, tree.root));
    }
}
