//! The tables and functions of the engine: made and brought up to date by whoever connects first.

use std::time::Duration;

use tokio_postgres::Client;

use super::address::Address;
use super::trouble;
use crate::EngineError;

/// One after the other; what was released is never changed, only followed by another.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/1.sql")];

/// Everybody who changes the schema takes this advisory lock first: "lkschema".
const LOCK: i64 = 0x6c6b_7363_6865_6d61;

/// How long it may take to wait for others who do it at the same time, and to do it.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Brings a schema of this version up to date. Several may try at once.
pub(super) async fn update(client: &Client, place: &Address, from: Option<usize>) -> Result<(), EngineError> {
    match from {
        Some(version) if version == MIGRATIONS.len() => Ok(()),
        Some(version) if version > MIGRATIONS.len() => Err(newer(place, version)),
        Some(_) | None => match tokio::time::timeout(TIME_MAX, migrate(client, place)).await {
            Ok(done) => done,
            Err(_) => Err(EngineError::Unreachable(format!(
                "{place} has not made the tables within {} s",
                TIME_MAX.as_secs()
            ))),
        },
    }
}

/// None: there is nothing of ours.
pub(super) async fn version(client: &Client, place: &Address) -> Result<Option<usize>, EngineError> {
    let failed = |error: tokio_postgres::Error| trouble::unreachable(place, &error);
    // Not by its name alone: a name that was looked up in vain before is remembered within a transaction.
    let sql = "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where n.nspname = any (current_schemas(false)) and c.relname = 'lockkeeper_schema')";
    let there = client.query_one(sql, &[]).await.map_err(failed)?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_opt("select version from lockkeeper_schema", &[]).await.map_err(failed)?;
    Ok(row.map(|row| usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX)))
}

/// A database has one set of tables, unless the URL says which is meant: two would be two worlds, and nobody would notice.
async fn refuse_another(client: &Client, place: &Address) -> Result<(), EngineError> {
    if place.schema().is_some() {
        return Ok(());
    }
    let sql = "select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where c.relname = 'lockkeeper_schema' and c.relkind = 'r' limit 1";
    let failed = |error: tokio_postgres::Error| trouble::of(&error, place).into_error();
    match client.query_opt(sql, &[]).await.map_err(failed)? {
        None => Ok(()),
        Some(row) => {
            let schema: String = row.get(0);
            Err(EngineError::Invalid(format!(
                "{place} has the tables in the schema {schema}, which is not in the search_path of this user; name the one that \
                 is meant: ?options=-c%20search_path%3D{schema}"
            )))
        }
    }
}

async fn migrate(client: &Client, place: &Address) -> Result<(), EngineError> {
    let failed = |error: tokio_postgres::Error| match trouble::of(&error, place).into_error() {
        EngineError::Unreachable(why) => EngineError::Unreachable(format!("its tables can't be made: {why}")),
        other => other,
    };
    // All of it, or nothing; the lock ends with the transaction.
    let begin =
        format!("begin; set local statement_timeout = {}; select pg_advisory_xact_lock({LOCK})", TIME_MAX.as_millis());
    client.batch_execute(&begin).await.map_err(failed)?;
    let done = async {
        let from = version(client, place).await?;
        if from.is_none() {
            refuse_another(client, place).await?;
        }
        let from = from.unwrap_or(0);
        if from > MIGRATIONS.len() {
            return Err(newer(place, from));
        }
        for (index, migration) in MIGRATIONS.iter().enumerate().skip(from) {
            tracing::info!(%place, version = index + 1, "bringing the tables up to date");
            client.batch_execute(migration).await.map_err(failed)?;
        }
        let count = MIGRATIONS.len();
        let record = format!(
            "create table if not exists lockkeeper_schema (version int not null);
             delete from lockkeeper_schema; insert into lockkeeper_schema values ({count})"
        );
        client.batch_execute(&record).await.map_err(failed)
    }
    .await;
    client.batch_execute(if done.is_ok() { "commit" } else { "rollback" }).await.map_err(failed)?;
    done
}

fn newer(place: &Address, version: usize) -> EngineError {
    EngineError::Invalid(format!(
        "{place} was brought to version {version} by a newer Lockkeeper; this one knows {}: install the newer one here, too",
        MIGRATIONS.len()
    ))
}
