"""Links between live members: frames, connections, handshake, retransmission."""
