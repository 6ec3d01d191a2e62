//! Account tokens: made, listed, revoked.

use crate::jwt::Audience;
use crate::{Caller, Core, Error, Result};
use estrade_model::account::{CreatedToken, Token};
use estrade_model::time::Lifetime;
use estrade_model::{AccountId, TokenId};
use estrade_store::ChangeKind;
use estrade_store::tokens::{self, NewToken, TokenRow};

fn on_the_wire(row: TokenRow) -> Token {
    Token {
        id: row.id,
        name: row.name,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    }
}

/// Makes a token for an account; the text is in the answer and nowhere else.
pub async fn create_token(
    core: &Core,
    account: AccountId,
    name: &str,
    lifetime: Lifetime,
) -> Result<CreatedToken> {
    let now = core.now();
    let id: TokenId = core.new_id()?;
    let expires_at = lifetime.0.map(|span| now.after(span));
    let signed = core
        .keyring
        .load()
        .sign(Audience::Account, id, now, expires_at)?;
    let row = NewToken {
        id,
        account,
        name: name.to_owned(),
        secret_hash: signed.secret_hash,
        created_at: now,
        expires_at,
    };
    core.db
        .transact(move |tx| {
            let row = row.clone();
            Box::pin(async move { Ok::<_, Error>(tokens::insert_token(tx, &row).await?) })
        })
        .await?;
    Ok(CreatedToken {
        id,
        api_token: Some(signed.token),
    })
}

/// A page of an account's tokens, newest first.
pub async fn list_tokens(
    core: &Core,
    account: AccountId,
    before: Option<TokenId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Token>> {
    let rows = tokens::list_tokens(&core.db, account, before, count, skip).await?;
    Ok(rows.into_iter().map(on_the_wire).collect())
}

/// Revokes one of the caller's tokens; in force for the next request.
pub async fn delete_token(core: &Core, caller: &Caller, id: TokenId) -> Result<()> {
    revoke(core, Some(caller.account), id).await
}

/// Revokes a token whoever owns it, for the administrator's command line.
pub async fn revoke_any_token(core: &Core, id: TokenId) -> Result<()> {
    revoke(core, None, id).await
}

async fn revoke(core: &Core, account: Option<AccountId>, id: TokenId) -> Result<()> {
    let now = core.now();
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                let gone = match account {
                    Some(account) => tokens::delete_token(tx, account, id).await?,
                    None => tokens::delete_any_token(tx, id).await?,
                };
                if !gone {
                    return Err(Error::NotFound("the token"));
                }
                Ok(tx.changed(ChangeKind::Token, id, now).await?)
            })
        })
        .await
}
