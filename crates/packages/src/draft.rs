//! What the checks behind the schema look at: the packages as far as they could be read, each text with its place.
//! Lenient, so that a slip in one package does not hide what is wrong with another.

use std::fmt;

use crate::limits::{LOCKS_MAX, PACKAGES_MAX, SCOPE_MAX};
use crate::problem::Place;
use crate::tree::{NodeId, Tree};

#[derive(Debug)]
pub(crate) struct Draft<'t> {
    pub packages: Vec<DraftPackage<'t>>,
    /// `None` if there are no contracts to compare with; that was told already.
    pub contracts: Option<DraftContracts<'t>>,
}

#[derive(Debug)]
pub(crate) struct DraftPackage<'t> {
    pub id: Option<Entry<'t>>,
    pub depends_on: Vec<Entry<'t>>,
    pub files: Vec<Entry<'t>>,
    pub keys: Vec<Entry<'t>>,
    pub write_allow: Vec<Entry<'t>>,
    pub read_allow: Vec<Entry<'t>>,
    pub deny: Vec<Entry<'t>>,
}

#[derive(Debug)]
pub(crate) struct DraftContracts<'t> {
    pub primary: Option<&'t str>,
    pub files: Vec<&'t str>,
    pub generated: Vec<&'t str>,
}

/// A text of a package, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'t> {
    pub text: &'t str,
    pub place: Place,
    pub path: EntryPath,
}

/// Where an entry is in the document; a text only when it is asked for, because there may be a million of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPath {
    package: u32,
    field: &'static str,
    index: Option<u32>,
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packages[{}].{}", self.package, self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

impl<'t> Draft<'t> {
    pub(crate) fn read(tree: &'t Tree<'_>) -> Draft<'t> {
        let root = tree.root();
        let packages = tree.field(root, "packages").map_or(&[][..], |list| tree.items(list));
        let packages = packages.iter().enumerate().map(|(index, node)| read_package(tree, index as u32, *node));
        Draft { packages: packages.collect(), contracts: read_contracts(tree) }
    }

    /// The id of a package as a message may name it.
    pub(crate) fn name(&self, package: usize) -> &'t str {
        self.packages[package].id.map_or("a package without an id", |id| id.text)
    }
}

fn read_package<'t>(tree: &'t Tree<'_>, package: u32, node: NodeId) -> DraftPackage<'t> {
    let entry = |id: NodeId, field, index| {
        let path = EntryPath { package, field, index };
        tree.text(id).map(|text| Entry { text, place: tree.node(id).place, path })
    };
    let list = |holder: Option<NodeId>, name: &str, field, most: usize| -> Vec<Entry<'t>> {
        let items = holder.and_then(|holder| tree.field(holder, name)).map_or(&[][..], |list| tree.items(list));
        // What is beyond the bound was told, and is not looked at.
        items.iter().take(most).enumerate().filter_map(|(index, id)| entry(*id, field, Some(index as u32))).collect()
    };
    let (locks, scope) = (tree.field(node, "locks"), tree.field(node, "scope"));
    DraftPackage {
        id: tree.field(node, "package_id").and_then(|id| entry(id, "package_id", None)),
        depends_on: list(Some(node), "depends_on", "depends_on", PACKAGES_MAX),
        files: list(locks, "files", "locks.files", LOCKS_MAX),
        keys: list(locks, "keys", "locks.keys", LOCKS_MAX),
        write_allow: list(scope, "write_allow", "scope.write_allow", SCOPE_MAX),
        read_allow: list(scope, "read_allow", "scope.read_allow", SCOPE_MAX),
        deny: list(scope, "deny", "scope.deny", SCOPE_MAX),
    }
}

fn read_contracts<'t>(tree: &'t Tree<'_>) -> Option<DraftContracts<'t>> {
    let contracts = tree.field(tree.root(), "contracts")?;
    let openapi = tree.field(contracts, "openapi")?;
    let files = tree.items(tree.field(openapi, "files")?);
    let mut generated = Vec::new();
    if let Some(section) = tree.field(contracts, "generated") {
        tree.texts(section, &mut generated);
    }
    Some(DraftContracts {
        primary: tree.field(openapi, "primary").and_then(|id| tree.text(id)),
        files: files.iter().filter_map(|id| tree.text(*id)).collect(),
        generated,
    })
}
