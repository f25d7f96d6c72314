/**
 * When a phone fails over to another super peer, without I/O. Times are milliseconds of a monotonic clock.
 *
 * A phone that cannot reach its super peer for a while calls the others, and asks the first that answers for a
 * slot. If its own can be reached again it moves, without a gap and without a snapshot. If not, it gives up
 * what it has there, and returns at the other with a snapshot and its backlog.
 */

import type { Id } from "./bytes.js";
import type { Core, Event } from "./core.js";

/** How long a super peer may be out of reach before others are called; as long again, before the phone gives
 * up what it has there. */
const PATIENCE = 2_000;

export class Failover {
  private readonly since = new Map<Id, number>();
  /** Whether other super peers are to be called. */
  seeks = false;

  constructor(private readonly core: Core) {}

  /** This process was suspended: nobody counts as out of reach for that time. */
  excuse(late: number): void {
    for (const [address, since] of this.since) this.since.set(address, since + late);
  }

  /** What to do, given the addresses to which there is a connection from the current one. */
  check(connected: Set<Id>, now: number): Event | null {
    const { core } = this;
    const { hub } = core;
    const reliedOn = hub === null ? new Set<Id>() : core.reliedOn;
    for (const address of this.since.keys())
      if (!reliedOn.has(address) || connected.has(address)) this.since.delete(address);
    for (const address of reliedOn)
      if (!connected.has(address) && !this.since.has(address)) this.since.set(address, now);
    const lost = [...this.since].filter(([, since]) => now - since >= PATIENCE).map(([address]) => address);
    const isHubLost = hub !== null && lost.includes(hub);
    this.seeks = isHubLost && !core.isMoving;
    if (lost.some((each) => each !== hub) || (isHubLost && core.current!.state.isGivingUp))
      return { kind: "lost", addresses: lost };
    if (!isHubLost) return null;
    if (core.isMoving || core.phase === "leaving")
      return now - this.since.get(hub)! >= 2 * PATIENCE ? { kind: "lost", addresses: [hub] } : null;
    for (const address of connected) {
      const link = core.findLink(core.state.current!, address);
      if (link !== null && core.current!.mayMove(address)) return { kind: "move", link };
    }
    return null;
  }
}
