//! The clock of the bucket, as the `Date` of its responses tells it.
//!
//! Ages of objects are compared with times of this machine. Both are measured by one clock when the difference is
//! taken away: else a wrong clock would make objects old that were put a moment ago.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use http::header::DATE;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// How many seconds the bucket's clock is ahead of this machine's.
#[derive(Debug, Default)]
pub(super) struct BucketClock(AtomicI64);

impl BucketClock {
    /// What this machine's clock said when the bucket's said `time`.
    pub(super) fn to_local(&self, time: SystemTime) -> SystemTime {
        let ahead = self.0.load(Ordering::Relaxed);
        let shift = Duration::from_secs(ahead.unsigned_abs());
        let local = if ahead < 0 {
            time.checked_add(shift)
        } else {
            time.checked_sub(shift)
        };
        local.unwrap_or(time)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the real clock of this machine is what the bucket's is compared with"
    )]
    fn note(&self, response: &HttpResponse) {
        let date = response.headers().get(DATE);
        let date = date.and_then(|it| it.to_str().ok());
        if let Some(Ok(date)) = date.map(httpdate::parse_http_date) {
            self.note_times(date, SystemTime::now());
        }
    }

    fn note_times(&self, bucket: SystemTime, local: SystemTime) {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let ahead = match bucket.duration_since(local) {
            Ok(ahead) => seconds(ahead),
            Err(behind) => -seconds(behind.duration()),
        };
        self.0.store(ahead, Ordering::Relaxed);
    }
}

/// Makes HTTP clients that read the clock from each response.
#[derive(Debug)]
pub(super) struct ClockConnector(pub(super) Arc<BucketClock>);

impl HttpConnector for ClockConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(ClockClient {
            client: ReqwestConnector::default().connect(options)?,
            clock: Arc::clone(&self.0),
        }))
    }
}

#[derive(Debug)]
struct ClockClient {
    client: HttpClient,
    clock: Arc<BucketClock>,
}

type Response<'c> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'c>>;

impl HttpService for ClockClient {
    fn call<'s, 'c>(&'s self, request: HttpRequest) -> Response<'c>
    where
        's: 'c,
        Self: 'c,
    {
        Box::pin(async move {
            let response = self.client.execute(request).await?;
            self.clock.note(&response);
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_bucket_is_told_by_the_local_clock() {
        let clock = BucketClock::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(clock.to_local(at(1000)), at(1000));
        clock.note_times(at(5000), at(4000));
        assert_eq!(clock.to_local(at(5000)), at(4000));
        clock.note_times(at(4000), at(5000));
        assert_eq!(clock.to_local(at(4000)), at(5000));
    }
}
