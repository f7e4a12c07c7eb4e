//! etcd over gRPC: puts if the key is not there, and deletes. The few messages that this takes are written down here.

use std::time::Instant;

use prost::Message;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codec::ProstCodec;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use crate::Load;
use crate::flood::Times;

/// Clients that share a connection, as etcd's own clients do.
const CLIENTS_PER_CONNECTION: usize = 8;
/// `Compare.CompareTarget`: the revision at which a key was made; zero: it is not there.
const CREATE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes, tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
    #[prost(bytes, tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Committed {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes, tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Deleted {
    #[prost(int64, tag = "2")]
    deleted: i64,
}

pub(crate) fn pairs(place: &str, load: Load) -> anyhow::Result<Times> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut channels = Vec::new();
        for _ in 0..load.clients.div_ceil(CLIENTS_PER_CONNECTION) {
            channels.push(Endpoint::from_shared(place.to_owned())?.connect().await?);
        }
        let mut tasks = JoinSet::new();
        let end = Instant::now() + load.length();
        for number in 0..load.clients {
            tasks.spawn(ask_in_turn(number, channels[number / CLIENTS_PER_CONNECTION].clone(), end));
        }
        let mut all = Times { elapsed: load.length(), ..Times::default() };
        while let Some(times) = tasks.join_next().await {
            all.rounds.extend(times??);
        }
        Ok(all)
    })
}

async fn ask_in_turn(number: usize, channel: Channel, end: Instant) -> anyhow::Result<Vec<u64>> {
    let mut grpc = Grpc::new(channel);
    let key = format!("src/file-{number}.rs").into_bytes();
    let value = format!("token-{number}").into_bytes();
    let transaction = Transaction {
        compare: vec![Compare { target: CREATE, key: key.clone(), create_revision: Some(0) }],
        success: vec![Operation { put: Some(Put { key: key.clone(), value }) }],
    };
    let delete = Delete { key };
    let mut rounds = Vec::new();
    loop {
        let began = Instant::now();
        let committed: Committed = call(&mut grpc, transaction.clone(), "/etcdserverpb.KV/Txn").await?;
        anyhow::ensure!(committed.succeeded, "the key was there");
        let deleted: Deleted = call(&mut grpc, delete.clone(), "/etcdserverpb.KV/DeleteRange").await?;
        anyhow::ensure!(deleted.deleted == 1, "the key was not there");
        if Instant::now() > end {
            return Ok(rounds);
        }
        rounds.push(began.elapsed().as_nanos() as u64);
    }
}

async fn call<Q, A>(grpc: &mut Grpc<Channel>, question: Q, path: &'static str) -> anyhow::Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    grpc.ready().await?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let answer = grpc.unary(tonic::Request::new(question), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}
