//! The connections: made, watched, given up and made again, each by a task of its own; and one command on one of them.

use crate::Settings;
use crate::bounded::{Bounded, Unanswered};
use crate::limits::{LASTED, PAUSES, PIPELINE_MAX};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisResult, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Why a command has no result.
pub(crate) enum Refusal {
    /// Redis answered that it cannot, for this command.
    Answered,
    /// There was no answer within the time, or no connection.
    Failed,
}

pub(crate) struct Links {
    settings: Settings,
    /// Says nothing: the library does not tell why Redis refuses a password, so [`greet`](Self::greet) signs in.
    info: RedisConnectionInfo,
    links: Vec<Link>,
    /// Commands that may be under way.
    room: Semaphore,
    turn: AtomicUsize,
    up: AtomicUsize,
    /// The log was told that there is no connection.
    is_down: AtomicBool,
    /// The log was told that commands are refused, since there is a connection.
    is_refusing: AtomicBool,
}

#[derive(Default)]
struct Link {
    open: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    connection: MultiplexedConnection,
    unanswered: Unanswered,
    failure: Arc<Failure>,
}

/// Tells the task that keeps a connection that it is of no use.
#[derive(Default)]
struct Failure {
    told: Notify,
    why: Mutex<String>,
}

impl Links {
    pub(crate) fn new(settings: Settings) -> Self {
        let size = settings.pool_size;
        Self {
            settings,
            info: RedisConnectionInfo::default().set_skip_set_lib_name(),
            links: (0..size).map(|_| Link::default()).collect(),
            room: Semaphore::new(size * PIPELINE_MAX),
            turn: AtomicUsize::new(0),
            up: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            is_refusing: AtomicBool::new(false),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Connections there are.
    pub(crate) fn up(&self) -> usize {
        self.up.load(Relaxed)
    }

    /// Keeps a connection, for ever.
    pub(crate) async fn keep(self: Arc<Self>, number: usize) {
        let Some(link) = self.links.get(number) else { return };
        let [mut pause, longest] = PAUSES;
        loop {
            let begun = Instant::now();
            let why = match timeout(self.settings.connect_timeout, self.connect()).await {
                Err(_) => format!("no connection within {} ms", self.settings.connect_timeout.as_millis()),
                Ok(Err(why)) => why,
                Ok(Ok((open, driver))) => {
                    let failure = open.failure.clone();
                    *link.open.lock() = Some(open);
                    self.came();
                    // Ends when the connection does, or when a command on it found that it is of no use. Its end ends the driver, which
                    // lets all that is under way there fail at once.
                    let why = tokio::select! {
                        () = driver => "the connection was closed".to_owned(),
                        () = failure.told.notified() => failure.why.lock().clone(),
                    };
                    *link.open.lock() = None;
                    self.up.fetch_sub(1, Relaxed);
                    why
                }
            };
            self.went(&why);
            if begun.elapsed() >= LASTED {
                pause = PAUSES[0];
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    async fn connect(&self) -> Result<(Open, impl Future<Output = ()>), String> {
        let Settings { host, port, .. } = &self.settings;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| self.cannot_connect(&e))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let unanswered = Unanswered::default();
        let stream = Bounded { stream, unanswered: unanswered.clone() };
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&self.info, stream, AsyncConnectionConfig::new())
                .await
                .map_err(|e| said(&e))?;
        // Limits are ours: they end the connection, too.
        connection.set_response_timeout(self.settings.socket_timeout * 2);
        let mut driver = Box::pin(driver);
        let mut greeting = connection.clone();
        tokio::select! {
            () = &mut driver => return Err("the connection was closed".to_owned()),
            greeted = self.greet(&mut greeting) => greeted.map_err(|e| said(&e))?,
        }
        unanswered.store(0, Relaxed);
        Ok((Open { connection, unanswered, failure: Arc::default() }, driver))
    }

    /// Signs in, chooses the database, and asks whether Redis answers.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let Settings { user, password, database, .. } = &self.settings;
        match (user, password) {
            (_, None) => {}
            (None, Some(password)) => _ = say(connection, &["AUTH", password]).await?,
            (Some(user), Some(password)) => match say(connection, &["AUTH", user, password]).await {
                // A Redis before 6.0 has no users.
                Err(e) if e.detail().is_some_and(|detail| detail.contains("wrong number of arguments")) => {
                    _ = say(connection, &["AUTH", password]).await?;
                }
                answer => _ = answer?,
            },
        }
        if *database != 0 {
            say(connection, &["SELECT", &database.to_string()]).await?;
        }
        say(connection, &["PING"]).await?;
        Ok(())
    }

    /// In the words of Triton's client of Redis: `Connection refused`, without the number of the error.
    fn cannot_connect(&self, why: &std::io::Error) -> String {
        let why = why.to_string();
        let reason = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
        let reason = reason.split(" (os error").next().unwrap_or(reason);
        format!("failed to connect to Redis ({}): {reason}", self.place())
    }

    fn came(&self) {
        self.is_refusing.store(false, Relaxed);
        if self.up.fetch_add(1, Relaxed) == 0 && self.is_down.swap(false, Relaxed) {
            log::info!("the Redis of the response cache at {} is used again", self.place());
        }
    }

    fn went(&self, why: &str) {
        if self.up() == 0 && !self.is_down.swap(true, Relaxed) {
            log::warn!(
                "the Redis of the response cache at {} is not used: {why}; nothing is cached meanwhile",
                self.place()
            );
        }
    }

    fn place(&self) -> String {
        format!("{}:{}", self.settings.host, self.settings.port)
    }

    /// Has Redis do something, on one of the connections.
    pub(crate) async fn ask(&self, command: Cmd) -> Result<Value, Refusal> {
        let Ok(Ok(_room)) = timeout(self.settings.wait_timeout, self.room.acquire()).await else {
            return Err(Refusal::Failed);
        };
        let first = self.turn.fetch_add(1, Relaxed);
        let of = |n: usize| self.links.get(n % self.links.len().max(1));
        let found = (0..self.links.len()).filter_map(|n| of(first.wrapping_add(n))).find_map(|link| {
            let open = link.open.lock().clone()?;
            Some((link, open))
        });
        let Some((link, mut open)) = found else { return Err(Refusal::Failed) };
        let why = match timeout(self.settings.socket_timeout, open.connection.send_packed_command(&command)).await {
            Err(_) => format!("no answer within {} ms", self.settings.socket_timeout.as_millis()),
            // Not Redis' own words: what came is no answer, or nothing comes any more.
            Ok(Err(e)) if e.code().is_none() => e.to_string(),
            Ok(answer) => {
                open.unanswered.store(0, Relaxed);
                return answer.and_then(Value::extract_error).map_err(|e| self.refused(&e));
            }
        };
        link.fail(why, &open.failure);
        Err(Refusal::Failed)
    }

    /// Redis cannot do what it is asked: it is full, read-only, loading, or the user may not. The connection is good.
    fn refused(&self, why: &redis::RedisError) -> Refusal {
        if !self.is_refusing.swap(true, Relaxed) {
            log::warn!("the Redis of the response cache at {} refuses a command: {}", self.place(), said(why));
        }
        Refusal::Answered
    }
}

async fn say(connection: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word));
    connection.send_packed_command(&command).await.and_then(Value::extract_error)
}

/// What Redis answered, in its own words where it was an error of Redis: `NOAUTH Authentication required.`
fn said(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

impl Link {
    /// Gives a connection up, unless that was done before.
    fn fail(&self, why: String, failure: &Arc<Failure>) {
        let mut open = self.open.lock();
        if open.as_ref().is_some_and(|o| Arc::ptr_eq(&o.failure, failure)) {
            *open = None;
            *failure.why.lock() = why;
            failure.told.notify_one();
        }
    }
}
