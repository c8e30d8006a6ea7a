//! The bus's answers in a client's protocol.

use cluster::commands::{ClusterReply, Field, LinkEntry, ShardEntry, SlotsEntry, SlotsNode};
use cluster::slots::SlotRange;
use resp::reply::Reply;

/// The names and values of an entry in the reply of LINKS: Redis's names.
const LINK_FIELDS: usize = 6;

/// The error for a change of a slot that the replicas have not acknowledged in time.
const NOT_REPLICATED: &str = "NOREPLICAS Not enough good replicas to write.";

/// Returns the text of an error, with its code.
pub(crate) fn error_text(reply: &ClusterReply) -> Option<String> {
    match reply {
        ClusterReply::Error(text) => Some(format!("ERR {text}")),
        ClusterReply::NotReplicated => Some(NOT_REPLICATED.into()),
        _ => None,
    }
}

/// Writes an answer.
pub(crate) fn write(answer: &ClusterReply, reply: &mut Reply<'_>) {
    match answer {
        ClusterReply::Ok => reply.ok(),
        ClusterReply::Error(text) => reply.error(format!("ERR {text}")),
        ClusterReply::NotReplicated => reply.error(NOT_REPLICATED),
        ClusterReply::Later => reply.error("ERR The node is busy. Try again in a moment"),
        ClusterReply::Status(text) => reply.status(text),
        ClusterReply::Bulk(text) => reply.bulk(text),
        ClusterReply::Verbatim(text) => reply.verbatim("txt", text),
        ClusterReply::Integer(number) => reply.int(*number),
        ClusterReply::Lines(lines) => {
            reply.array(lines.len());
            lines.iter().for_each(|line| reply.bulk(line));
        }
        ClusterReply::Slots(entries) => write_slots(entries, reply),
        ClusterReply::Shards(shards) => write_shards(shards, reply),
        ClusterReply::Links(links) => write_links(links, reply),
    }
}

fn write_slots(entries: &[SlotsEntry], reply: &mut Reply<'_>) {
    reply.array(entries.len());
    for SlotsEntry { range, nodes } in entries {
        reply.array(2 + nodes.len());
        write_range(*range, reply);
        nodes.iter().for_each(|node| write_slots_node(node, reply));
    }
}

fn write_range(range: SlotRange, reply: &mut Reply<'_>) {
    reply.int(i64::from(range.first.number()));
    reply.int(i64::from(range.last.number()));
}

fn write_slots_node(node: &SlotsNode, reply: &mut Reply<'_>) {
    reply.array(4);
    reply.bulk_or_null(node.endpoint.as_ref());
    reply.int(i64::from(node.port));
    reply.bulk(node.id.as_str());
    reply.map(node.metadata.len());
    for (name, value) in &node.metadata {
        reply.bulk(name);
        reply.bulk(value);
    }
}

fn write_shards(shards: &[ShardEntry], reply: &mut Reply<'_>) {
    reply.array(shards.len());
    for ShardEntry { slots, nodes, id } in shards {
        reply.map(3);
        reply.bulk("slots");
        reply.array(2 * slots.len());
        slots.iter().for_each(|range| write_range(*range, reply));
        reply.bulk("nodes");
        reply.array(nodes.len());
        nodes.iter().for_each(|fields| write_fields(fields, reply));
        reply.bulk("id");
        reply.bulk(id.as_str());
    }
}

fn write_fields(fields: &[(&'static str, Field)], reply: &mut Reply<'_>) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name);
        match value {
            Field::Text(text) => reply.bulk(text),
            Field::Number(number) => reply.int(*number),
        }
    }
}

fn write_links(links: &[LinkEntry], reply: &mut Reply<'_>) {
    reply.array(links.len());
    for link in links {
        reply.map(LINK_FIELDS);
        reply.bulk("direction");
        reply.bulk(if link.inbound { "from" } else { "to" });
        reply.bulk("node");
        reply.bulk(link.node.as_str());
        reply.bulk("create-time");
        reply.int(link.create_time as i64);
        reply.bulk("events");
        reply.bulk(if link.is_writing { "rw" } else { "r" });
        reply.bulk("send-buffer-allocated");
        reply.int(link.queued_bytes as i64);
        reply.bulk("send-buffer-used");
        reply.int(link.queued_bytes as i64);
    }
}
