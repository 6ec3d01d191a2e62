//! Look-ups of several ids in one statement: a page of a list costs one of them, however many rows it has.

use crate::{Query, Value};

/// Most ids of one statement: a page, and the row that tells whether another one follows.
pub(crate) const MAX_IDS: usize = 64;

/// The parameters of [`bind_ids`], as the right side of `IN`. The next parameter is `$65`.
macro_rules! id_list {
    () => {
        "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
         $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, \
         $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, \
         $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64)"
    };
}
pub(crate) use id_list;

/// Binds at most [`MAX_IDS`] ids. What is left of the list is NULL, which equals nothing.
pub(crate) fn bind_ids(
    query: Query<'_>,
    ids: impl IntoIterator<Item = impl Into<Value>>,
) -> Query<'_> {
    let ids = ids.into_iter().map(Into::into);
    let padded = ids.chain(std::iter::repeat(Value::Null)).take(MAX_IDS);
    padded.fold(query, Query::bind)
}
