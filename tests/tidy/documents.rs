//! Reads Markdown: which documents there are, and where their links lead. Knows no rule.

use std::path::PathBuf;

use crate::files::{collect, root};

pub(crate) fn documents() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    collect(&root().join("docs"), "md", &mut paths);
    let top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    paths.extend(top.into_iter().filter(|path| path.exists()));
    paths
}

/// Relative targets of Markdown links, with their line numbers; none from code.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for behind in prose.split("](").skip(1) {
            let target = behind.split([')', ' ']).next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

// The reader itself, which must not be fooled.

#[test]
fn links_are_found_in_prose_and_not_in_code() {
    let text = "[a](b.md#c), `[x](y)` [w](https://w)\n```\n[x](y)\n```\n[d](../e.md)\n";
    assert_eq!(links(text), [(1, "b.md#c".to_owned()), (5, "../e.md".to_owned())]);
}
