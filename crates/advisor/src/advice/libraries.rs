//! The tables of the client libraries.

pub mod go_redis;
pub mod ioredis;
pub mod jedis;
pub mod lettuce;
pub mod node_redis;
pub mod phpredis;
pub mod predis;
pub mod redigo;
pub mod redis_py;
pub mod redis_rb;
pub mod redisson;
pub mod spring;
