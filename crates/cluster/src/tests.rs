mod debugging;
mod elections;
mod file;
mod rules;
mod setslot;
mod view;
mod wire;
mod world;
