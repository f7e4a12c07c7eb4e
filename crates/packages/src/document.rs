//! What a work-packages.yaml says. The shape, its bounds and its JSON Schema are stated here, once.

use lockkeeper_core::key::Key;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{
    CONTRACT_FILES_MAX, DESCRIPTION_CHARS_MAX, LOCKS_MAX, NAME_CHARS_MAX, PACKAGES_MAX, PRIORITY_MAX, REASON_CHARS_MAX,
    RETRY_BUDGET_MAX, REVISION_MAX, SCOPE_MAX, TIMEOUT_MINUTES_MAX, TITLE_CHARS_MAX, TRUST_LEVEL_MAX, TTL_MINUTES_MAX,
};
use crate::problem::Problem;
use crate::schema::{FeatureId, FilePath, FreeShape, LogicalKey, PackageId};
use crate::validate::validate;

/// The package that puts the others together, and may therefore touch what they touch.
pub const INTEGRATION: &str = "wp-integration";

/// The packages into which one feature is cut, and what they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "work-packages.yaml")]
#[non_exhaustive]
pub struct Document {
    /// The version of this format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub schema_version: u8,
    /// The feature that is cut into packages.
    pub feature: Feature,
    /// What the packages agree on before they start.
    pub contracts: Contracts,
    /// What holds for packages that say nothing else.
    #[serde(default)]
    pub defaults: Defaults,
    /// The packages.
    #[schemars(length(min = 1, max = PACKAGES_MAX))]
    pub packages: Vec<Package>,
    /// Anything else worth keeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub metadata: Option<Value>,
}

/// The feature that is cut into packages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Feature {
    /// The feature's id, as in `feature:<id>:pause`.
    #[schemars(with = "FeatureId")]
    pub id: String,
    /// Rises with every change of the plan.
    #[schemars(range(min = 1, max = REVISION_MAX))]
    pub plan_revision: u32,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = TITLE_CHARS_MAX))]
    pub title: Option<String>,
    /// What the feature is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = DESCRIPTION_CHARS_MAX))]
    pub description: Option<String>,
    /// Anything else worth keeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub metadata: Option<Value>,
}

/// What the packages agree on before they start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Contracts {
    /// Rises with every change of a contract.
    #[schemars(range(min = 1, max = REVISION_MAX))]
    pub revision: u32,
    /// The OpenAPI documents.
    pub openapi: OpenApi,
    /// What is generated from the contracts; every text in it is the path or the glob of an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub generated: Option<Value>,
    /// Servers that stand in for the real ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub mocks: Option<Value>,
    /// Consumer-driven contracts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub cdc: Option<Value>,
}

/// The OpenAPI documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OpenApi {
    /// The document to read first.
    #[schemars(with = "FilePath")]
    pub primary: String,
    /// Every document that a `contract:` key may name.
    #[schemars(with = "Vec<FilePath>", length(max = CONTRACT_FILES_MAX), extend("uniqueItems" = true))]
    pub files: Vec<String>,
}

/// What holds for packages that say nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Defaults {
    /// How urgent a package is.
    #[schemars(range(min = 1, max = PRIORITY_MAX))]
    pub priority: u8,
    /// How long locks are held without a sign of life.
    #[schemars(range(min = 1, max = TTL_MINUTES_MAX))]
    pub lock_ttl_minutes: u16,
    /// After how long a package counts as failed.
    #[schemars(range(min = 1, max = TIMEOUT_MINUTES_MAX))]
    pub timeout_minutes: u16,
    /// How often a failed package is tried again.
    #[schemars(range(max = RETRY_BUDGET_MAX))]
    pub retry_budget: u8,
    /// How well the work must have been verified.
    #[schemars(length(min = 1, max = NAME_CHARS_MAX))]
    pub verification_tier_required: String,
    /// How far an agent must be trusted to take a package: 0 (suspended) to 4.
    #[schemars(range(max = TRUST_LEVEL_MAX))]
    pub min_trust_level: u8,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            priority: 5,
            lock_ttl_minutes: 120,
            timeout_minutes: 60,
            retry_budget: 1,
            verification_tier_required: "A".to_owned(),
            min_trust_level: 2,
        }
    }
}

/// A piece of work for one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Package {
    /// The package's name: lower-case letters, digits, dashes and underscores.
    #[schemars(with = "PackageId")]
    pub package_id: String,
    /// What kind of work it is.
    #[schemars(length(min = 1, max = NAME_CHARS_MAX))]
    pub task_type: String,
    /// What is to be done.
    #[schemars(length(min = 1, max = DESCRIPTION_CHARS_MAX))]
    pub description: String,
    /// The packages that must be finished before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<PackageId>", length(max = PACKAGES_MAX), extend("uniqueItems" = true))]
    pub depends_on: Vec<String>,
    /// How urgent the package is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 1, max = PRIORITY_MAX))]
    pub priority: Option<u8>,
    /// What the package holds while it works.
    pub locks: Locks,
    /// Where the package may write and read.
    pub scope: Scope,
    /// Where the package is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub worktree: Option<Value>,
    /// After how long the package counts as failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16", range(min = 1, max = TIMEOUT_MINUTES_MAX))]
    pub timeout_minutes: Option<u16>,
    /// How often the package is tried again after it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(max = RETRY_BUDGET_MAX))]
    pub retry_budget: Option<u8>,
    /// How far an agent must be trusted to take the package: 0 (suspended) to 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(max = TRUST_LEVEL_MAX))]
    pub min_trust_level: Option<u8>,
    /// How the work is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub verification: Option<Value>,
    /// What the package leaves behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub outputs: Option<Value>,
    /// Anything else worth keeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeShape")]
    pub metadata: Option<Value>,
}

/// What a package holds while it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Locks {
    /// Paths, relative to the root of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<FilePath>", length(max = LOCKS_MAX), extend("uniqueItems" = true))]
    pub files: Vec<Key>,
    /// Logical keys, such as `api:GET /v1/users`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<LogicalKey>", length(max = LOCKS_MAX), extend("uniqueItems" = true))]
    pub keys: Vec<Key>,
    /// How long the locks are held without a sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16", range(min = 1, max = TTL_MINUTES_MAX))]
    pub ttl_minutes: Option<u16>,
    /// What others are told when they meet the locks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = REASON_CHARS_MAX))]
    pub reason: Option<String>,
}

impl Locks {
    /// Files first, then keys, as they stand in the document.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.files.iter().chain(&self.keys)
    }
}

/// Where a package may write and read, as globs: see [`Glob`](crate::Glob).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scope {
    /// What the package may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<FilePath>", length(max = SCOPE_MAX))]
    pub write_allow: Vec<String>,
    /// What the package may read; at least one entry.
    #[schemars(with = "Vec<FilePath>", length(min = 1, max = SCOPE_MAX))]
    pub read_allow: Vec<String>,
    /// What the package may not touch, whatever else is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<FilePath>", length(max = SCOPE_MAX))]
    pub deny: Vec<String>,
}

/// What holds for one package: its own word, or else the document's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub priority: u8,
    pub lock_ttl_minutes: u16,
    pub timeout_minutes: u16,
    pub retry_budget: u8,
    pub verification_tier_required: String,
    pub min_trust_level: u8,
}

impl Document {
    /// Reads a document that can be used. Packages that overlap are no error here, because their locks keep them
    /// apart; [`validate`] tells them too.
    pub fn parse(file_name: &str, text: &str) -> Result<Document, Vec<Problem>> {
        let report = validate(file_name, text);
        report.document.ok_or(report.problems)
    }

    pub fn package(&self, package_id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.package_id == package_id)
    }

    pub fn settings(&self, package: &Package) -> Settings {
        let defaults = &self.defaults;
        Settings {
            priority: package.priority.unwrap_or(defaults.priority),
            lock_ttl_minutes: package.locks.ttl_minutes.unwrap_or(defaults.lock_ttl_minutes),
            timeout_minutes: package.timeout_minutes.unwrap_or(defaults.timeout_minutes),
            retry_budget: package.retry_budget.unwrap_or(defaults.retry_budget),
            verification_tier_required: defaults.verification_tier_required.clone(),
            min_trust_level: package.min_trust_level.unwrap_or(defaults.min_trust_level),
        }
    }
}
