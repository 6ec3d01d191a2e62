//! Keyset pagination: `?before={id}` shows what is older than an item.

use crate::error::PanelError;
use estrade_model::Id;
use estrade_service::Error;
use serde::Deserialize;

/// Items of a page.
pub const PAGE_SIZE: u32 = 50;

/// The query of a list.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ListQuery {
    #[serde(default)]
    pub before: Option<String>,
}

impl ListQuery {
    /// The last item of the page before; none on the first page.
    pub fn before<T>(&self) -> Result<Option<Id<T>>, PanelError> {
        let text = self.before.as_deref().filter(|text| !text.is_empty());
        let Some(text) = text else {
            return Ok(None);
        };
        let id = text.parse::<Id<T>>();
        Ok(Some(id.map_err(|_| {
            Error::invalid("before: must be the id of an item of the list")
        })?))
    }
}

/// Takes what is more than a page off, and returns the id that the next page begins before.
///
/// Ask for [`PAGE_SIZE`] and one more.
pub fn split_page<R, T>(rows: &mut Vec<R>, id: impl Fn(&R) -> Id<T>) -> Option<String> {
    if rows.len() <= PAGE_SIZE as usize {
        return None;
    }
    rows.truncate(PAGE_SIZE as usize);
    rows.last().map(|row| id(row).to_string())
}

/// Where a page begins whose first item is this one, newest first: the smallest id that is larger.
pub fn just_after<T>(id: Id<T>) -> Id<T> {
    let mut bytes = *id.as_bytes();
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    Id::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::KeyId;

    #[test]
    fn nothing_lies_between_an_id_and_the_next() {
        let after = |text: &str| just_after(text.parse::<KeyId>().unwrap()).to_string();
        assert_eq!(
            after("0123456789abcdef01234567"),
            "0123456789abcdef01234568"
        );
        assert_eq!(
            after("0123456789abcdef0123ffff"),
            "0123456789abcdef01240000"
        );
    }

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let id = |n: u8| KeyId::from_bytes([n; 12]);
        let mut rows: Vec<u8> = (0..51).rev().collect();
        assert_eq!(split_page(&mut rows, |n| id(*n)), Some(id(1).to_string()));
        assert_eq!(rows.len(), 50);
        assert_eq!(split_page(&mut rows, |n| id(*n)), None);
    }

    #[test]
    fn an_id_of_another_form_is_refused() {
        let query = |text: &str| ListQuery {
            before: Some(text.to_owned()),
        };
        assert!(query("x").before::<estrade_model::id::kind::Key>().is_err());
        assert!(
            query("")
                .before::<estrade_model::id::kind::Key>()
                .unwrap()
                .is_none()
        );
    }
}
