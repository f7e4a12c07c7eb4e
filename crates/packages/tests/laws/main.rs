//! The laws of work packages: what is told of a document, how much it may cost, and what a plan says.

mod bounds;
mod checks;
mod example;
mod plans;
mod properties;

use lockkeeper_packages::{Check, Problem, Report, validate};

pub(crate) const FILE: &str = "work-packages.yaml";

/// The head of a document, eleven lines; packages follow.
pub(crate) const HEAD: &str = "\
schema_version: 1
feature:
  id: FEAT-1
  plan_revision: 1
contracts:
  revision: 1
  openapi:
    primary: openapi/v1.yaml
    files: [openapi/v1.yaml]
  generated: {models: gen/models.py, clients: gen/clients/}
packages:
";

/// A package in six lines; the first of a document begins in line 12.
pub(crate) fn package(id: &str, depends_on: &str, files: &str, keys: &str, write: &str) -> String {
    format!(
        "  - package_id: {id}\n    task_type: work\n    description: Work.\n    depends_on: [{depends_on}]\n    \
         locks: {{files: [{files}], keys: [{keys}]}}\n    \
         scope: {{read_allow: ['**'], write_allow: [{write}]}}\n"
    )
}

pub(crate) fn document(packages: &[String]) -> String {
    format!("{HEAD}{}", packages.concat())
}

pub(crate) fn report(text: &str) -> Report {
    validate(FILE, text)
}

/// The one problem of a document.
pub(crate) fn only(text: &str) -> Problem {
    let report = report(text);
    assert_eq!(report.problems.len(), 1, "{:#?}", report.problems);
    report.problems[0].clone()
}

/// The one problem, which is of this check, in this place, and says this.
pub(crate) fn expect(text: &str, check: Check, place: (u32, u32), path: &str, words: &str) -> Problem {
    let problem = only(text);
    assert_eq!(problem.check, check, "{problem}");
    assert_eq!((problem.line, problem.column), place, "{problem}");
    assert_eq!(problem.path, path, "{problem}");
    assert!(problem.message.contains(words), "{problem}");
    assert_eq!(problem.to_string(), format!("{FILE}:{}:{}: {}", place.0, place.1, problem.message));
    problem
}
