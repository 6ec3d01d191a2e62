//! The installation itself.

use crate::{Db, StoreError};

/// The name of this installation; `new` becomes it where there is none yet.
pub async fn name_installation(db: &Db, new: String) -> Result<String, StoreError> {
    db.transact(move |tx| {
        let new = new.clone();
        Box::pin(async move {
            tx.query("INSERT INTO installation (slot, name) VALUES (1, $1) ON CONFLICT DO NOTHING")
                .bind(new.as_str())
                .execute()
                .await?;
            tx.query("SELECT name FROM installation WHERE slot = 1")
                .fetch_one()
                .await
        })
    })
    .await
}
