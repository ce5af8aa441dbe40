//! The real connection: one multiplexed Redis connection over TCP, TLS or a Unix socket.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, PushInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::address::{Address, Place};
use super::command::{self, Known, Native};
use super::interview::{self, Question};
use super::{Alarm, Command, Connection, Connector, Form, Heard, Marker, NodeError, NodeErrorKind, Report};

/// So many commands fit into the queue before a submission would have to wait for room.
const QUEUE: usize = 1 << 20;

/// Connects to one address.
pub(crate) struct RedisConnector {
    name: Arc<str>,
    address: Address,
    namespace: Vec<u8>,
    /// The server does not speak RESP3.
    old_protocol: AtomicBool,
    /// Root certificates in PEM, in place of the system's.
    #[cfg(feature = "tls")]
    pub(crate) ca: Option<Arc<[u8]>>,
}

impl RedisConnector {
    pub(crate) fn new(name: Arc<str>, address: Address, namespace: Vec<u8>) -> Self {
        Self {
            name,
            address,
            namespace,
            old_protocol: AtomicBool::new(false),
            #[cfg(feature = "tls")]
            ca: None,
        }
    }

    async fn open(&self) -> Result<Arc<dyn Connection>, NodeError> {
        match &self.address.place {
            Place::Tcp { host, port, tls: false } => self.greet(self.tcp(host, *port).await?).await,
            #[cfg(feature = "tls")]
            Place::Tcp { host, port, tls: true } => {
                let stream = self.tcp(host, *port).await?;
                let stream = super::tls::wrap(host, self.ca.clone(), stream).await;
                self.greet(stream.map_err(|error| self.unreachable(&error))?).await
            }
            #[cfg(not(feature = "tls"))]
            Place::Tcp { tls: true, .. } => {
                Err(self.unreachable(&std::io::Error::other("TLS needs the crate's feature `tls`")))
            }
            #[cfg(unix)]
            Place::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path).await;
                self.greet(stream.map_err(|error| self.unreachable(&error))?).await
            }
            #[cfg(not(unix))]
            Place::Unix(_) => {
                Err(self.unreachable(&std::io::Error::other("no Unix sockets on this platform")))
            }
        }
    }

    /// Names are resolved anew each time: a container may come back elsewhere.
    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, NodeError> {
        let connect = async {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(10));
            socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Ok(stream)
        };
        connect.await.map_err(|error: std::io::Error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &std::io::Error) -> NodeError {
        NodeError::new(&self.name, NodeErrorKind::Unreachable, error.to_string())
    }

    /// Logs in, and asks who is there and what it understands, in one round trip each.
    async fn greet<S>(&self, stream: S) -> Result<Arc<dyn Connection>, NodeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let alarm = Arc::new(Alarm::default());
        let mut login = self.address.login.clone();
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            // Overdue answers are the supervisor's business.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let pushes = !self.old_protocol.load(Ordering::Relaxed);
        if pushes {
            let alarm = alarm.clone();
            config = config.set_push_sender(move |push: PushInfo| interview::heard(&alarm, &push));
            login = login.set_protocol(ProtocolVersion::RESP3);
        }
        let opened = MultiplexedConnection::new_with_config(&login, stream, config).await;
        let (redis, driver) = opened.map_err(|error| {
            // Pushes need RESP3; a server that does not speak it serves without, from the next try on.
            let refused = error.kind() == ErrorKind::RESP3NotSupported || error.code() == Some("NOPERM");
            self.old_protocol.fetch_or(refused, Ordering::Relaxed);
            match error.kind() {
                ErrorKind::Parse => command::nonsense(&self.name),
                _ => command::failure(&self.name, &error),
            }
        })?;
        let gone = CancellationToken::new();
        let ending = gone.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _ending = ending;
            driver.await;
        });
        let mut connection = RedisConnection {
            name: self.name.clone(),
            redis,
            task: task.abort_handle(),
            gone,
            native: Native::default(),
            known: Known::default(),
            report: Report::default(),
            namespace: self.namespace.clone(),
            alarm,
        };
        connection.introduce(pushes).await?;
        Ok(Arc::new(connection))
    }
}

impl Connector for RedisConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Connection>, NodeError>> {
        async {
            let new_protocol = !self.old_protocol.load(Ordering::Relaxed);
            match self.open().await {
                Err(_) if new_protocol && self.old_protocol.load(Ordering::Relaxed) => self.open().await,
                opened => opened,
            }
        }
        .boxed()
    }
}

struct RedisConnection {
    name: Arc<str>,
    redis: MultiplexedConnection,
    /// Reads and writes the socket; ends when the connection breaks.
    task: AbortHandle,
    /// Cancelled when the task has ended.
    gone: CancellationToken,
    native: Native,
    known: Known,
    report: Report,
    namespace: Vec<u8>,
    alarm: Arc<Alarm>,
}

impl RedisConnection {
    /// Sends `cmd` at once: the client library sends at the first poll, so that one is made here.
    fn send(&self, cmd: Cmd) -> BoxFuture<'static, Result<Value, RedisError>> {
        let mut redis = self.redis.clone();
        // Without a budget: a first poll that yields would send later, out of order.
        let send = async move { redis.send_packed_command(&cmd).await };
        let mut send = tokio::task::unconstrained(send).boxed();
        match send.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => ready(answer).boxed(),
            Poll::Pending => send,
        }
    }

    /// Puts `questions`, in one round trip.
    fn ask(&self, questions: &[Question]) -> BoxFuture<'static, (Report, Native, Vec<RedisError>)> {
        let answers = join_all(questions.iter().map(|question| self.send(question.cmd(&self.namespace))));
        let (mut report, mut native) = (self.report.clone(), self.native);
        let questions = questions.to_vec();
        async move {
            let mut refused = Vec::new();
            for (question, answer) in questions.into_iter().zip(answers.await) {
                let answer = answer.and_then(Value::extract_error);
                let answer = answer.map_err(|error| refused.push(error)).ok();
                question.take(&mut report, &mut native, answer);
            }
            (report, native, refused)
        }
        .boxed()
    }

    /// Finds out who answers and which native commands it has: by trying, not by its version.
    async fn introduce(&mut self, pushes: bool) -> Result<(), NodeError> {
        let begun = std::time::Instant::now();
        let (mut report, native, refused) = self.ask(&interview::all(&self.namespace)).await;
        cannot_serve(&self.name, &refused)?;
        report.round_trip = Some(begun.elapsed());
        // Without RESP3 a server agrees to tell, and never does.
        report.tracked &= pushes;
        (self.report, self.native) = (report, native);
        Ok(())
    }
}

/// Answers may be refused one by one; a server that cannot serve at all is an error.
fn cannot_serve(name: &Arc<str>, refused: &[RedisError]) -> Result<(), NodeError> {
    use NodeErrorKind::{Authentication, ConnectionLost, Loading};
    let mut failures = refused.iter().map(|error| command::failure(name, error));
    let fatal = failures.find(|failure| matches!(failure.kind(), ConnectionLost | Authentication | Loading));
    fatal.map_or(Ok(()), Err)
}

impl Connection for RedisConnection {
    fn submit(&self, command: &Command, form: Form) -> BoxFuture<'static, Heard> {
        let time = matches!(command, Command::Extend { .. }).then(|| self.send(redis::cmd("TIME")));
        let mut redis = self.redis.clone();
        let cmd = command::encode(command, form, self.native, &self.known);
        let (name, command) = (self.name.clone(), command.clone());
        let ask = async move {
            let answer = redis.send_packed_command(&cmd).await;
            let answer = command::decode(&name, &command, answer).map_err(|error| match error.kind() {
                NodeErrorKind::ConnectionLost => error.after_sending(),
                _ => error,
            });
            let time = match time {
                Some(time) => time.await.ok().and_then(interview::time),
                None => None,
            };
            Heard { answer, time }
        };
        // As in `send`, which would cost a second box.
        let mut ask = tokio::task::unconstrained(ask).boxed();
        match ask.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(heard) => ready(heard.answer.map_err(NodeError::unsent).into()).boxed(),
            Poll::Pending => ask,
        }
    }

    fn next_form(&self, command: &Command, form: Form, error: &NodeError) -> Option<Form> {
        command::next_form(command, form, error.kind())
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn native(&self) -> Vec<&'static str> {
        self.native.names()
    }

    fn look(&self) -> BoxFuture<'static, Result<Report, NodeError>> {
        let (answers, name) = (self.ask(&interview::AGAIN), self.name.clone());
        async move {
            let (report, _, refused) = answers.await;
            cannot_serve(&name, &refused).map(|()| report)
        }
        .boxed()
    }

    fn mark(&self, marker: &Marker) -> BoxFuture<'static, Result<Marker, NodeError>> {
        let (answer, name) = (self.send(interview::mark(&self.namespace, marker)), self.name.clone());
        async move {
            let answer = answer.await.and_then(Value::extract_error);
            let stands = answer.map_err(|error| command::failure(&name, &error))?;
            let nonsense =
                || NodeError::new(&name, NodeErrorKind::Unexpected, "no marker after it was written");
            interview::marker(&stands).flatten().ok_or_else(nonsense)
        }
        .boxed()
    }

    fn kill(&self, client: u64) -> BoxFuture<'static, Result<(), NodeError>> {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(client);
        let (answer, name) = (self.send(kill), self.name.clone());
        async move {
            let answer = answer.await.and_then(Value::extract_error);
            answer.map(|_| ()).map_err(|error| command::failure(&name, &error))
        }
        .boxed()
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.gone.clone().cancelled_owned().boxed()
    }

    fn close(&self) {
        self.task.abort();
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
