//! Work packages, checked for whoever has no program of ours at hand.

use lockkeeper_wire::answer::PackagesReport;
use lockkeeper_wire::operation::Operation;
use lockkeeper_wire::request::PackagesRequest;
use lockkeeper_wire::word::Word;

use super::{Body, Caller, Service, json};
use crate::door;
use crate::refusal::No;

impl Service {
    pub(super) async fn validate_packages(&self, body: PackagesRequest, caller: &Caller) -> Body {
        self.permit_look(Operation::ValidatePackages, caller, &body, None)?;
        let Some(text) = body.text else {
            return Err(No::new(Word::InvalidRequest, "Say what to check: the text of a work-packages.yaml."));
        };
        let name = body.file_name.as_deref().map_or_else(|| "work-packages.yaml".to_owned(), door::shown);
        // It may take a moment, and others are served meanwhile: one document after the other.
        let turn =
            self.packages.clone().acquire_owned().await.map_err(|error| No::new(Word::Internal, error.to_string()))?;
        let checked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let report = lockkeeper_packages::validate(&name, &text);
            let problems = report.problems.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
            let success = report.is_valid();
            Ok::<_, serde_json::Error>(PackagesReport { success, problems, left_out: report.left_out })
        });
        let failed = |error: String| No::new(Word::Internal, error);
        let report = checked.await.map_err(|error| failed(error.to_string()))?;
        json(&report.map_err(|error| failed(error.to_string()))?)
    }
}
