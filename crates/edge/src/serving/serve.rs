//! The worker threads of a port: one per core, each with its own socket, runtime and connection pool.

use crate::edge::Edge;
use crate::proxy::pool::Pool;
use crate::serving::fast_path;
use crate::serving::hyper_service::HyperService;
use crate::serving::worker::Worker;
use estrade_http1::server::Outcome;
use estrade_listener::{ConnectionHandle, FastPath, ListenerOptions, Port, WorkerContext};
use futures_util::future::BoxFuture;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves requests on a port until `stop` is cancelled and those in flight have ended.
///
/// Boxed, so that it is compiled here.
pub fn serve(port: Port, edge: Arc<Edge>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    let worker = move |context: WorkerContext| {
        let pool = Arc::new(Pool::new(&edge.proxy));
        let idle: Weak<Pool> = Arc::downgrade(&pool);
        edge.proxy.upstreams.register(idle);
        let worker = Arc::new(Worker {
            pool,
            edge: Arc::clone(&edge),
            index: context.index,
            options: context.options.clone(),
            tunnels: TaskTracker::new(),
            stop: context.stop.clone(),
            date: Mutex::default(),
        });
        run(worker, context)
    };
    Box::pin(port.serve("edge", worker, stop))
}

impl FastPath for HyperService {
    async fn serve_fast_path(
        &self,
        mut stream: TcpStream,
        peer: IpAddr,
        _: &ListenerOptions,
        connection: &Arc<ConnectionHandle>,
    ) -> Outcome {
        match fast_path::serve(&self.0, &mut stream, peer, connection).await {
            Some(input) => Outcome::Fallback(stream, input),
            None => Outcome::Closed(Some(stream)),
        }
    }
}

async fn run(worker: Arc<Worker>, context: WorkerContext) {
    let service = HyperService(Arc::clone(&worker));
    tokio::select! {
        () = context.serve_fast_path(service) => {}
        () = worker.pool.sweep() => {}
    }
    // The tunnels were cancelled by the same token and end at once.
    worker.tunnels.close();
    worker.tunnels.wait().await;
}
