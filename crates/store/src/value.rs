//! Values that both backends understand, on their way in and out.

use crate::StoreError;
use estrade_model::{Id, Timestamp};
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use std::error::Error;
use tokio_postgres::types::{self as pg, IsNull, ToSql, Type};

/// A bound parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Text(String),
    /// BLOB or BYTEA.
    Bytes(Vec<u8>),
}

macro_rules! into_value {
    ($($from:ty => |$v:ident| $to:expr;)*) => {
        $(impl From<$from> for Value { fn from($v: $from) -> Self { $to } })*
    };
}
into_value! {
    bool => |v| Self::Bool(v);
    i64 => |v| Self::Int(v);
    u32 => |v| Self::Int(v.into());
    u16 => |v| Self::Int(v.into());
    String => |v| Self::Text(v);
    &str => |v| Self::Text(v.to_owned());
    &String => |v| Self::Text(v.clone());
    Vec<u8> => |v| Self::Bytes(v);
    &[u8] => |v| Self::Bytes(v.to_vec());
    [u8; 32] => |v| Self::Bytes(v.to_vec());
    &[u8; 32] => |v| Self::Bytes(v.to_vec());
    Timestamp => |v| Self::Int(v.millis());
}
impl<T> From<Id<T>> for Value {
    fn from(id: Id<T>) -> Self {
        Self::Text(id.to_string())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Integer((*value).into()),
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut pg::private::BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Bool(value) => value.to_sql(ty, out),
            // PostgreSQL infers narrower types for bare arithmetic; follow it rather than fail.
            Self::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) => value.to_sql(ty, out),
            Self::Text(value) => value.to_sql(ty, out),
            Self::Bytes(value) => value.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // Checked per value: a value that does not fit its column is refused by the server.
        true
    }

    pg::to_sql_checked!();
}

/// One result row, read column by column from left to right.
pub struct Row<'r> {
    source: Source<'r>,
    next: usize,
}

enum Source<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl<'r> Row<'r> {
    pub(crate) fn sqlite(row: &'r rusqlite::Row<'r>) -> Self {
        Self {
            source: Source::Sqlite(row),
            next: 0,
        }
    }

    pub(crate) fn postgres(row: &'r tokio_postgres::Row) -> Self {
        Self {
            source: Source::Postgres(row),
            next: 0,
        }
    }

    /// The next column.
    pub fn take<T: Column>(&mut self) -> Result<T, StoreError> {
        let index = self.next;
        self.next += 1;
        match self.source {
            Source::Sqlite(row) => T::from_sqlite(row, index),
            Source::Postgres(row) => T::from_postgres(row, index),
        }
    }

    /// The next column, parsed from its text.
    pub fn parse<T: std::str::FromStr>(&mut self) -> Result<T, StoreError>
    where
        T::Err: Error + Send + Sync + 'static,
    {
        self.take::<String>()?.parse().map_err(StoreError::bug)
    }
}

/// A type that a column of either backend can be read as.
pub trait Column: Sized {
    /// From a SQLite row.
    fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError>;
    /// From a PostgreSQL row.
    fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError>;
}

/// Columns that both drivers decode by themselves.
macro_rules! plain_column {
    ($($ty:ty),*) => { $(
        impl Column for $ty {
            fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
                Ok(row.get(index)?)
            }
            fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
                Ok(row.try_get(index)?)
            }
        }
        impl Column for Option<$ty> {
            fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
                Ok(row.get(index)?)
            }
            fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
                Ok(row.try_get(index)?)
            }
        }
    )* };
}
plain_column!(bool, i64, String, Vec<u8>);

/// Columns that are read as another type and then converted.
macro_rules! converted_column {
    ($(<$g:ident>)? $ty:ty, $raw:ty, |$v:ident| $convert:expr) => {
        impl$(<$g>)? Column for $ty {
            fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
                let $v = <$raw>::from_sqlite(row, index)?;
                $convert
            }
            fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
                let $v = <$raw>::from_postgres(row, index)?;
                $convert
            }
        }
        impl$(<$g>)? Column for Option<$ty> {
            fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
                Option::<$raw>::from_sqlite(row, index)?.map(|$v| $convert).transpose()
            }
            fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
                Option::<$raw>::from_postgres(row, index)?.map(|$v| $convert).transpose()
            }
        }
    };
}
converted_column!(u64, i64, |v| u64::try_from(v).map_err(StoreError::bug));
converted_column!(u32, i64, |v| u32::try_from(v).map_err(StoreError::bug));
converted_column!(u16, i64, |v| u16::try_from(v).map_err(StoreError::bug));
converted_column!(Timestamp, i64, |v| Ok(Timestamp::from_millis(v)));
converted_column!([u8; 32], Vec<u8>, |v| v
    .try_into()
    .map_err(|_| StoreError::bug("a hash is not 32 bytes long")));

/// Ids are read without a copy of their text: lists are full of them.
struct IdText<T>(Id<T>);
impl<T> FromSql for IdText<T> {
    fn column_result(value: ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        let id = value
            .as_str()?
            .parse()
            .map_err(|error| rusqlite::types::FromSqlError::Other(Box::new(error)))?;
        Ok(Self(id))
    }
}
impl<T> Column for Id<T> {
    fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
        Ok(row.get::<_, IdText<T>>(index)?.0)
    }
    fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
        row.try_get::<_, &str>(index)?
            .parse()
            .map_err(StoreError::bug)
    }
}
impl<T> Column for Option<Id<T>> {
    fn from_sqlite(row: &rusqlite::Row<'_>, index: usize) -> Result<Self, StoreError> {
        Ok(row.get::<_, Option<IdText<T>>>(index)?.map(|id| id.0))
    }
    fn from_postgres(row: &tokio_postgres::Row, index: usize) -> Result<Self, StoreError> {
        row.try_get::<_, Option<&str>>(index)?
            .map(str::parse)
            .transpose()
            .map_err(StoreError::bug)
    }
}

/// Something that can be read from a row of either backend.
pub trait Record: Sized {
    /// Reads the columns in the order in which the query names them.
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError>;
}

/// A row of one column.
impl<T: Column> Record for T {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        row.take()
    }
}

/// The bound of a list that goes from the newest id down: after the last one seen, or from the top.
pub fn before<T>(last: Option<Id<T>>) -> Value {
    // `g` sorts after every hexadecimal digit, so the first page needs no query of its own.
    last.map_or_else(|| Value::Text("g".into()), Value::from)
}

/// Sorts before every id that was made at or after a moment, and after every older one.
pub fn first_id_of(millis: i64) -> Value {
    Value::Text(format!("{:012x}", millis.clamp(0, (1 << 48) - 1)))
}
