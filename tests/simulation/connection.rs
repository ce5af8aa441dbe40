//! The seam below the algorithm: a connection whose other end is in the world.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::message::{Ask, Told};
use super::network::Network;
use super::process::Process;
use crate::node::{
    Alarm, Command, Connection, Connector, Form, Heard, Marker, NodeError, NodeErrorKind, Report,
};

pub(crate) struct SimConnector {
    pub(crate) network: Arc<Network>,
    pub(crate) process: Arc<Process>,
    pub(crate) node: usize,
    pub(crate) name: Arc<str>,
}

/// The client's end.
struct SimConnection {
    line: Line,
    report: Report,
    alarm: Arc<Alarm>,
}

#[derive(Clone)]
struct Line {
    network: Arc<Network>,
    name: Arc<str>,
    link: usize,
    /// The network has told that nobody is at the other end.
    dropped: CancellationToken,
    /// The client has closed it.
    closed: CancellationToken,
}

impl Line {
    fn lost(&self) -> NodeError {
        NodeError::new(&self.name, NodeErrorKind::ConnectionLost, "the connection broke")
    }

    /// Sends `ask` at once; the future only waits for what is told.
    fn ask(&self, ask: Ask) -> BoxFuture<'static, Result<Told, NodeError>> {
        if self.dropped.is_cancelled() || self.closed.is_cancelled() {
            return ready(Err(self.lost())).boxed();
        }
        let answer = self.network.send(self.link, ask);
        self.clone().await_answer(answer).boxed()
    }

    async fn await_answer(self, answer: oneshot::Receiver<Told>) -> Result<Told, NodeError> {
        tokio::select! {
            biased;
            Ok(told) = answer => match told {
                Told::Error(error) => Err(error),
                told => Ok(told),
            },
            () = self.dropped.cancelled() => Err(self.lost().after_sending()),
            () = self.closed.cancelled() => Err(self.lost().after_sending()),
        }
    }

    async fn report(&self) -> Result<Report, NodeError> {
        match self.ask(Ask::Report).await? {
            Told::Report(report) => Ok(*report),
            other => unreachable!("{other:?}"),
        }
    }
}

impl Connector for SimConnector {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Connection>, NodeError>> {
        let (link, dropped) = self.network.connect(&self.process, self.node);
        let closed = CancellationToken::new();
        let line = Line { network: self.network.clone(), name: self.name.clone(), link, dropped, closed };
        async move {
            let report = line.report().await?;
            let connection: Arc<dyn Connection> =
                Arc::new(SimConnection { line, report, alarm: Arc::default() });
            Ok(connection)
        }
        .boxed()
    }
}

impl Connection for SimConnection {
    fn submit(&self, command: &Command, _form: Form) -> BoxFuture<'static, Heard> {
        let answer = self.line.ask(Ask::Command(command.clone()));
        async move {
            match answer.await {
                Ok(Told::Vote(vote, time)) => Heard { answer: Ok(vote), time: Some(time) },
                Ok(other) => unreachable!("{other:?}"),
                Err(error) => Err(error).into(),
            }
        }
        .boxed()
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn look(&self) -> BoxFuture<'static, Result<Report, NodeError>> {
        let line = self.line.clone();
        async move { line.report().await }.boxed()
    }

    fn mark(&self, marker: &Marker) -> BoxFuture<'static, Result<Marker, NodeError>> {
        let answer = self.line.ask(Ask::Mark(Box::new(marker.clone())));
        async move {
            match answer.await? {
                Told::Marker(marker) => Ok(*marker),
                other => unreachable!("{other:?}"),
            }
        }
        .boxed()
    }

    fn kill(&self, client: u64) -> BoxFuture<'static, Result<(), NodeError>> {
        let answer = self.line.ask(Ask::Kill(client));
        async move { answer.await.map(drop) }.boxed()
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        self.line.dropped.clone().cancelled_owned().boxed()
    }

    fn close(&self) {
        self.line.closed.cancel();
    }
}
