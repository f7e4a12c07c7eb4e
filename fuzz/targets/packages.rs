//! Work packages: whatever the text, there is a report within its bounds, and what is valid can be planned and drawn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockkeeper_packages::limits::PROBLEMS_MAX;
use lockkeeper_packages::{plan, validate};

fuzz_target!(|text: &str| {
    let report = validate("work-packages.yaml", text);
    assert!(report.problems.len() <= PROBLEMS_MAX);
    for problem in &report.problems {
        assert!(problem.line >= 1 && problem.column >= 1, "{problem}");
    }
    if let Some(document) = &report.document {
        let plan = plan(document);
        assert_eq!(plan.steps.len(), document.packages.len());
        assert!(plan.to_dot().starts_with("digraph") && plan.to_mermaid().starts_with("flowchart"));
    }
});
