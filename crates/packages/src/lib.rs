//! Work packages: reads `work-packages.yaml`, checks it, and plans which packages can run side by side.
//!
//! Pure: a text comes in, values go out. It opens no file, takes no lock and prints nothing.
//!
//! ```
//! let text = "schema_version: 1\nfeature: {id: F-1, plan_revision: 0}\n";
//! let report = lockkeeper_packages::validate("work-packages.yaml", text);
//! assert!(!report.is_valid());
//! assert!(report.problems[0].to_string().starts_with("work-packages.yaml:1:1: "));
//! ```
//!
//! The checks, in the order in which they are reported:
//!
//! 1. the text is YAML within the [`limits`], and has the shape of the [`schema`]; unknown fields are problems;
//! 2. `depends_on` names packages that exist, they form no circle, and no two packages have one id;
//! 3. locks are written in their one spelling: paths under `files`, logical keys under `keys`; a `contract:` path is
//!    one of the contracts;
//! 4. no path may be written by two packages that no dependency orders, directly or through others;
//! 5. no two such packages lock the same thing. [`INTEGRATION`] is exempt from the last two.

mod bits;
mod collide;
mod document;
mod draft;
mod draw;
mod glob;
mod keys;
pub mod limits;
mod meet;
mod order;
mod overlap;
mod plan;
mod problem;
mod scalar;
mod schema;
mod shape;
mod tree;
mod validate;

pub use document::{Contracts, Defaults, Document, Feature, INTEGRATION, Locks, OpenApi, Package, Scope, Settings};
pub use glob::{Glob, InvalidGlob};
pub use plan::{Collision, Plan, Step, plan};
pub use problem::{Check, Problem, Report};
pub use schema::{FILE_PATH_PATTERN, LOGICAL_KEY_PATTERN, PACKAGE_ID_PATTERN, schema};
pub use validate::validate;
