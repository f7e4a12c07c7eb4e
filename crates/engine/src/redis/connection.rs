//! One connection to one Redis: logged in, with a time limit on every command. Lost is lost: it is never mended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, Value};
use tokio_rustls::TlsConnector;

use super::address::{Host, Login};
use super::trouble::Trouble;
use super::wire::Wire;
use crate::EngineError;

/// How many bytes are given another second.
const BYTES_A_SECOND: u64 = 1 << 20;

/// Where it goes, and as whom.
#[derive(Clone, Debug)]
pub(super) struct Destination<'a> {
    pub(super) host: &'a Host,
    pub(super) login: &'a Login,
    pub(super) database: u16,
    pub(super) time_limit: Duration,
}

/// Takes what Redis says without being asked. Must not wait.
pub(super) type Pushed = Box<dyn Fn(PushInfo) + Send + Sync>;

/// Many may ask at the same time; the answers come in the order of the questions.
pub(super) struct Connection {
    host: Host,
    line: MultiplexedConnection,
    gone: Arc<AtomicBool>,
    time_limit: Duration,
    driver: tokio::task::AbortHandle,
}

impl Connection {
    /// Connects and logs in; the caller limits the time.
    pub(super) async fn open(
        to: Destination<'_>,
        tls: Option<&TlsConnector>,
        pushed: Option<Pushed>,
    ) -> Result<Connection, EngineError> {
        let Destination { host, login, database, time_limit } = to;
        let wire = Wire::open(host, tls).await;
        let wire = wire.map_err(|error| unreachable(host, &error))?;
        let gone = wire.gone();
        let mut info = RedisConnectionInfo::default().set_db(i64::from(database)).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            info = info.set_username(user);
        }
        if let Some(password) = &login.password {
            info = info.set_password(&password.0);
        }
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        if let Some(pushed) = pushed {
            info = info.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |info| {
                pushed(info);
                Ok::<(), ()>(())
            });
        }
        let made = MultiplexedConnection::new_with_config(&info, wire, config).await;
        let (line, driver) = made.map_err(|error| refused_login(host, &error))?;
        let driver = tokio::spawn(driver).abort_handle();
        Ok(Connection { host: host.clone(), line, gone, time_limit, driver })
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Nothing more is asked here.
    pub(super) fn give_up(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Asks, and waits no longer than the limit; a command of many bytes is given more.
    pub(super) async fn ask(&self, command: &Cmd, bytes: usize) -> Result<Value, Trouble> {
        let host = &self.host;
        if self.is_gone() {
            return Err(Trouble::Unsent(EngineError::Unreachable(format!(
                "the connection to Redis at {host} is lost"
            ))));
        }
        let time_limit = self.time_limit + Duration::from_millis(bytes as u64 * 1000 / BYTES_A_SECOND);
        let mut line = self.line.clone();
        match tokio::time::timeout(time_limit, line.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(error))) => Err(Trouble::Refused {
                code: error.code().to_owned(),
                text: error.details().unwrap_or_default().to_owned(),
            }),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.give_up();
                Err(Trouble::Lost(unreachable(host, &error)))
            }
            Err(_) => {
                // An answer that comes after all must not be taken for that of another question.
                self.give_up();
                let millis = time_limit.as_millis();
                let why = format!("Redis at {host} has not answered within {millis} ms");
                Err(Trouble::Late(EngineError::Unreachable(why)))
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("host", &self.host).field("gone", &self.is_gone()).finish_non_exhaustive()
    }
}

fn unreachable(host: &Host, error: &dyn fmt::Display) -> EngineError {
    EngineError::Unreachable(format!("Redis at {host} can't be reached: {error}"))
}

fn refused_login(host: &Host, error: &RedisError) -> EngineError {
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            EngineError::Invalid(format!("Redis at {host} takes neither this user nor this password"))
        }
        // Not in its own words: some repeat the command, with the password.
        _ => match error.code() {
            Some(code) => EngineError::Unreachable(format!("Redis at {host} refuses the login ({code})")),
            None => unreachable(host, error),
        },
    }
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;

    #[test]
    fn what_a_redis_says_to_a_login_is_not_repeated() {
        let said = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'user' 's3cret' ".to_owned();
        let kind = ErrorKind::Server(ServerErrorKind::ResponseError);
        let error = RedisError::from((kind, "An error was signalled by the server", said));
        let host = Host { name: "127.0.0.1".to_owned(), port: 6379 };
        let why = refused_login(&host, &error);
        assert!(!format!("{why} {why:?}").contains("s3cret"), "{why}");
    }
}
