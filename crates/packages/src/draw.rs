//! A plan for the eye: rows of a table, and graphs for Graphviz and Mermaid. Decides nothing.

use std::collections::HashMap;
use std::fmt::Write as _;

use lockkeeper_core::text::one_line;

use crate::plan::Plan;

impl Plan {
    /// The heads of the columns of [`Plan::rows`].
    pub const COLUMNS: [&str; 6] = ["wave", "package", "priority", "locks", "depends on", "waits for locks of"];

    /// One row for each package, wave after wave.
    pub fn rows(&self) -> Vec<[String; 6]> {
        let mut steps: Vec<_> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.wave);
        let row = |step: &&crate::plan::Step| {
            [
                step.wave.to_string(),
                one_line(&step.package_id).into_owned(),
                step.priority.to_string(),
                step.locks.to_string(),
                one_line(&step.depends_on.join(", ")).into_owned(),
                one_line(&step.waits_for.join(", ")).into_owned(),
            ]
        };
        steps.iter().map(row).collect()
    }

    /// The plan as a graph for Graphviz: arrows lead to what comes later, dashed ones are collisions of locks.
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph packages {\n  rankdir=LR;\n  node [shape=box];\n");
        for step in &self.steps {
            let name = quoted(&step.package_id);
            line(&mut out, format_args!("  {name} [tooltip=\"wave {}, priority {}\"];", step.wave, step.priority));
        }
        for wave in self.waves.iter().filter(|wave| wave.len() > 1) {
            let names: Vec<String> = wave.iter().map(|name| quoted(name)).collect();
            line(&mut out, format_args!("  {{ rank=same; {}; }}", names.join("; ")));
        }
        for step in &self.steps {
            for dependency in &step.depends_on {
                line(&mut out, format_args!("  {} -> {};", quoted(dependency), quoted(&step.package_id)));
            }
        }
        for collision in &self.collisions {
            let (first, second) = (quoted(&collision.first), quoted(&collision.second));
            let label = quoted(&collision.second_key);
            line(&mut out, format_args!("  {first} -> {second} [style=dashed, color=red, label={label}];"));
        }
        out.push_str("}\n");
        out
    }

    /// The plan as a Mermaid flowchart: arrows lead to what comes later, dotted ones are collisions of locks.
    pub fn to_mermaid(&self) -> String {
        // Names may be words of Mermaid's own, such as `end`; numbers never are.
        let numbers: HashMap<&str, usize> =
            self.steps.iter().enumerate().map(|(number, step)| (step.package_id.as_str(), number)).collect();
        let node = |name: &str| numbers.get(name).map(|number| format!("p{number}"));
        let mut out = String::from("flowchart LR\n");
        for (number, wave) in (1..).zip(&self.waves) {
            line(&mut out, format_args!("  subgraph w{number} [\"wave {number}\"]"));
            for (name, node) in wave.iter().filter_map(|name| Some((name, node(name)?))) {
                line(&mut out, format_args!("    {node}[\"{}\"]", entities(name)));
            }
            line(&mut out, format_args!("  end"));
        }
        for step in &self.steps {
            for dependency in &step.depends_on {
                if let (Some(from), Some(to)) = (node(dependency), node(&step.package_id)) {
                    line(&mut out, format_args!("  {from} --> {to}"));
                }
            }
        }
        for collision in &self.collisions {
            if let (Some(from), Some(to)) = (node(&collision.first), node(&collision.second)) {
                line(&mut out, format_args!("  {from} -.->|\"{}\"| {to}", entities(&collision.second_key)));
            }
        }
        out
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes everything");
}

/// A string of Graphviz. A backslash begins an escape there, which a name never means.
fn quoted(text: &str) -> String {
    format!("\"{}\"", one_line(text).replace('\\', "\\\\").replace('"', "\\\""))
}

/// What Mermaid could take for its own language, or a page for markup, as numbers of characters.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        if c.is_alphanumeric() || " -_./:".contains(c) {
            out.push(c);
        } else {
            write!(out, "#{};", u32::from(c)).expect("a string takes everything");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_quotes() {
        assert_eq!(quoted("a\"]; b -> c [\\"), "\"a\\\"]; b -> c [\\\\\"");
        assert_eq!(quoted("a\nb"), "\"a b\"");
        assert_eq!(entities("a\"|<b>#35;`"), "a#34;#124;#60;b#62;#35;35#59;#96;");
        assert_eq!(entities("api:GET /v1/users"), "api:GET /v1/users");
    }
}
