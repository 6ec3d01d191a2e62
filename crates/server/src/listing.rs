//! Lists: one page when asked for, else everything, row by row in constant memory.

use crate::error::ErrorShape;
use crate::extract::Queries;
use crate::paging;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;
use estrade_model::Id;
use estrade_service::Result;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::marker::PhantomData;

/// Rows that one query fetches when everything is asked for.
const CHUNK: u32 = 500;
/// Rows of a page when only `page` is given.
const DEFAULT_COUNT: u32 = 15;
/// Most rows of one page; more is clamped, not refused.
const MOST_COUNT: u32 = 100;

/// `page` and `count` of a list.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Paged {
    /// Which page, from 1; without it and `count` the list is whole.
    #[param(minimum = 1)]
    page: Option<u64>,
    /// Rows per page, at most 100.
    #[param(minimum = 1)]
    count: Option<u64>,
}

/// The page that a request asks for.
pub struct Page<E> {
    asked: Paged,
    shape: PhantomData<E>,
}

impl<S: Send + Sync, E: ErrorShape> FromRequestParts<S> for Page<E>
where
    E: ErrorShape<Plain<Paged> = Paged>,
{
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> std::result::Result<Self, E> {
        let Queries(asked) = Queries::<Paged, E>::from_request_parts(parts, state).await?;
        Ok(Self { asked, shape: PhantomData })
    }
}

/// Which rows a query shall return: at most `count`, before `before`, after skipping `skip`.
#[derive(Debug)]
pub struct Window<T> {
    /// The last id that was already sent.
    pub before: Option<Id<T>>,
    /// How many rows.
    pub count: u32,
    /// How many rows to leave out first.
    pub skip: u64,
}

impl Paged {
    /// The one window of a page; none when everything is asked for.
    pub fn window(self) -> Option<(u32, u64)> {
        if self.page.is_none() && self.count.is_none() {
            return None;
        }
        let count = self.count.map_or(DEFAULT_COUNT, |count| u32::try_from(count).unwrap_or(MOST_COUNT));
        let count = count.clamp(1, MOST_COUNT);
        let skip = self.page.unwrap_or(1).saturating_sub(1).saturating_mul(count.into());
        Some((count, skip))
    }
}
