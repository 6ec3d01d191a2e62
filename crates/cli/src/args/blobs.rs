//! `estrade blobs …`.

use super::unrepeated::parse_unrepeated;
use crate::config::{AccessKeyId, BlobUrl, HttpUrl, Region};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use std::ffi::OsStr;
use std::path::PathBuf;

/// `estrade blobs …`.
#[derive(Debug, Subcommand)]
pub enum BlobsCommand {
    /// Move the files of releases from where blobs.url says to another place, while the servers run.
    ///
    /// Without --finish it copies what is not there yet, and servers go on as ever; it may be cut off and repeated.
    /// With --finish it also makes the move final: from then on servers refuse deploys until they are restarted with
    /// the new blobs.url, and go on serving sites meanwhile.
    ///
    /// Exit codes: 0 done, 1 cut off (run it again), 2 refused, 3 files are missing or damaged.
    #[command(after_help = "\
Examples:
  estrade blobs migrate --to s3://estrade/production           copy; as often as you like
  estrade blobs migrate --to s3://estrade/production --finish  copy the rest and switch; then restart the servers
  estrade blobs migrate --to file:///srv/estrade/blobs         from a bucket to a directory

What is not said by an option is taken from [blobs] and from AWS's variables, as by `estrade serve`:
  ESTRADE_BLOBS_ENDPOINT, ESTRADE_BLOBS_ACCESS_KEY_ID, ESTRADE_BLOBS_SECRET_ACCESS_KEY, …")]
    Migrate(MigrateArgs),
}

/// `estrade blobs migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// The new place: s3://BUCKET/PREFIX or file:///DIRECTORY
    #[arg(long, value_name = "URL", value_parser = BlobUrlParser)]
    pub to: BlobUrl,
    /// Make the move final when everything is there
    #[arg(long)]
    pub finish: bool,
    /// Leave files behind that are missing or damaged
    #[arg(long)]
    pub accept_damaged: bool,
    /// How many packs and files are copied at a time. Each takes its size on the disk of this machine meanwhile
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=32))]
    pub parallel: u8,
    /// The server of the new bucket
    #[arg(long, value_name = "URL", help_heading = "New place")]
    pub to_endpoint: Option<HttpUrl>,
    /// Its region
    #[arg(long, value_name = "REGION", help_heading = "New place")]
    pub to_region: Option<Region>,
    /// Whether it is named in the path of a URL
    #[arg(long, value_name = "BOOL", help_heading = "New place")]
    pub to_path_style: Option<bool>,
    /// The id of the key for it
    #[arg(long, value_name = "ID", help_heading = "New place")]
    #[arg(requires = "to_secret_access_key_file")]
    pub to_access_key_id: Option<AccessKeyId>,
    /// A file with the secret of that key
    #[arg(long, value_name = "FILE", help_heading = "New place")]
    #[arg(requires = "to_access_key_id")]
    pub to_secret_access_key_file: Option<PathBuf>,
}

/// Reads the URL of a place. clap's own message would repeat the value, and with it a key that somebody wrote there.
#[derive(Debug, Clone)]
struct BlobUrlParser;

impl TypedValueParser for BlobUrlParser {
    type Value = BlobUrl;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<BlobUrl, clap::Error> {
        parse_unrepeated(command, "--to <URL>", value)
    }
}
