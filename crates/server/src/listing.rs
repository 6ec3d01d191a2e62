//! Lists from the store: one page on request, else everything in chunks of constant size.

use crate::api_error::ApiError;
use crate::paging::{Frame, Paging, json_list};
use axum::response::Response;
use estrade_model::Id;
use estrade_service::Result;
use futures_util::stream;
use serde::Serialize;
use std::future::Future;

/// Rows that one query fetches when everything is requested.
const CHUNK_ROWS: u32 = 500;
/// Most rows of one page; more is clamped, not refused.
const MAX_PAGE_SIZE: u64 = 100;

/// `page` and `count` of a list, for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(
    dead_code,
    reason = "only its description is used; Paging reads the query"
)]
pub struct Paged {
    /// Which page, from 1. Without `page` and `count` the whole list is sent.
    page: Option<i64>,
    /// Rows per page, at most 100.
    count: Option<i64>,
}

/// Which rows a query shall return: at most `count`, with ids below `before`, after skipping `skip`.
#[derive(Debug)]
pub struct Window<K> {
    /// The last id that was already sent.
    pub before: Option<Id<K>>,
    /// How many rows.
    pub count: u32,
    /// How many rows to leave out first.
    pub skip: u64,
}

/// Responds with a list that `fetch` reads, newest first, chunk by chunk.
///
/// Keyset pagination: going on from the last id (not from a row number) keeps the list complete while rows are
/// added and removed, and holds no connection while a slow client reads.
pub async fn respond<E, K, T, F, Fut>(
    frame: Frame,
    paging: &Paging<E>,
    fetch: F,
    id_of: fn(&T) -> Id<K>,
) -> std::result::Result<Response, ApiError>
where
    T: Serialize + Send + 'static,
    K: 'static,
    F: Fn(Window<K>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Vec<T>>> + Send + 'static,
{
    if let Some(asked) = paging.window(MAX_PAGE_SIZE) {
        let count = u32::try_from(asked.limit).unwrap_or(CHUNK_ROWS);
        let page = fetch(Window {
            before: None,
            count,
            skip: asked.offset,
        })
        .await;
        return json_list(frame, stream::iter([page])).await;
    }
    let chunks = stream::unfold(Some(None), move |from: Option<Option<Id<K>>>| {
        let next = from.map(|before| {
            (
                before,
                fetch(Window {
                    before,
                    count: CHUNK_ROWS,
                    skip: 0,
                }),
            )
        });
        async move {
            let (_, chunk) = next?;
            let chunk = chunk.await;
            let more = chunk
                .as_ref()
                .ok()
                .filter(|rows| rows.len() == CHUNK_ROWS as usize);
            let from = more
                .and_then(|rows| rows.last())
                .map(|last| Some(id_of(last)));
            Some((chunk, from))
        }
    });
    json_list(frame, chunks).await
}
