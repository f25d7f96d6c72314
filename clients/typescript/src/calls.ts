/** The calls of a phone: which super peers it dials, when it retries, and the outcomes. */

import type { Id } from "./bytes.js";
import { Connection, GoneError, StaleError } from "./connection.js";
import type { Core, Event } from "./core.js";
import { RemoteError } from "./errors.js";
import { Failover } from "./failover.js";
import type { Change } from "./message.js";
import type { Platform, Wire } from "./platform.js";

/** Ticks are more frequent than this, unless the process is suspended or the page is hidden. */
const LATE = 1_000;
const GREETING = 10_000;
/** The interval between two calls for another super peer. */
const SEEK_PAUSE = 500;
const [FIRST_PAUSE, LONGEST_PAUSE] = [100, 3_000];

interface Call {
  connection: Connection;
  wire: Wire | null;
  /** The connection is over, or not made. */
  end(reason: string): void;
}

/** The interface of calls to their group. */
export interface Caller {
  readonly isClosing: boolean;
  step(event: Event): void;
  /** Record an event. */
  changed(): void;
  fail(error: Error): void;
  tell(kind: Change["kind"], name: string, text?: string): void;
}

export class Calls {
  /** The names of all connected processes, as last reported by the super peer; empty before the first report. */
  present = new Set<string>();
  private readonly calls = new Set<Call>();
  /** When each super peer may be called again, and after how many failures in a row. */
  private readonly pauses = new Map<string, { until: number; failures: number }>();
  private readonly refusals = new Map<string, string>();
  private readonly failover: Failover;
  private tickedAt = now();
  private soughtAt = 0;
  private turn = 0;
  /** The super peer to which the application wants to move. */
  wanted: string | null = null;

  constructor(
    private readonly core: Core,
    /** The URL of each super peer. */
    private readonly places: Map<string, string>,
    private readonly platform: Platform,
    private readonly caller: Caller,
  ) {
    this.failover = new Failover(core);
  }

  /** Whether the super peer of this phone is connected. */
  get isConnected(): boolean {
    const link = this.hubLink;
    return link !== null && [...this.calls].some((call) => call.connection.link === link);
  }

  /** The name of the super peer that this phone is behind; empty if there is none now. */
  get superPeer(): string {
    const link = this.hubLink;
    return link === null ? "" : this.core.state.links.get(link)!.contact.name;
  }

  /** Why super peers were not reached at the last call. */
  get reasons(): string {
    return Array.from(this.refusals, ([who, reason]) => `${who}: ${reason}`).join("; ");
  }

  isOpenOn(link: number): boolean {
    return [...this.calls].some((call) => call.connection.link === link);
  }

  private get hubLink(): number | null {
    const { core } = this;
    return core.hub === null ? null : core.findLink(core.state.current!, core.hub);
  }

  /** The open connections from the current address. */
  private get open(): Connection[] {
    return [...this.calls]
      .map(({ connection }) => connection)
      .filter((each) => each.isOpen && each.mine === this.core.state.current);
  }

  private theirs(connection: Connection): Id {
    return this.core.state.links.get(connection.link!)!.theirs;
  }

  // Calling

  /** The super peers in turn, connected ones first. */
  nextName(): string {
    const names = [...this.places.keys()];
    const connected = new Set([...this.calls].filter((call) => call.connection.isOpen).map((call) => call.connection.name));
    const first = this.turn === 0 ? names.find((name) => connected.has(name)) : undefined;
    return first ?? names[this.turn++ % names.length];
  }

  /** Call a super peer, on a link or from the current address; the link once both have greeted, or null. */
  async call(name: string, link: number | null): Promise<number | null> {
    const { core, caller } = this;
    const mine = link === null ? core.state.current! : core.state.links.get(link)!.mine;
    const connection = new Connection(core, name, mine, link);
    await new Promise<void>((resolve) => {
      let isOver = false;
      const end = (reason: string): void => {
        if (isOver) return;
        isOver = true;
        clearTimeout(timer);
        this.onClosed(call, reason);
        resolve();
      };
      const timer = setTimeout(() => connection.isOpen || end("it does not answer"), GREETING);
      const call: Call = { connection, wire: null, end };
      this.calls.add(call);
      const receive = (data: Uint8Array): void => {
        if (isOver) return;
        const wasOpen = connection.isOpen;
        const { hub } = core;
        try {
          connection.receive(data, now());
        } catch (error) {
          return end(this.onError(call, error));
        }
        if (!wasOpen) this.onOpen(call);
        if (hub !== null && core.hub !== null && core.hub !== hub) caller.tell("moved", this.superPeer);
        this.flush(call);
        caller.changed();
        this.notePresence(call);
        if (!wasOpen) resolve();
      };
      const dial = async (): Promise<void> => {
        const url = this.places.get(name)!;
        call.wire = await this.platform.dial(url, core.state.group, name, { receive, closed: end });
        const token = await this.platform.token();
        if (isOver || caller.isClosing) call.wire.close();
        else call.wire.send(connection.greet(token));
      };
      dial().catch((error: unknown) => end((error as Error).message));
    });
    return connection.link;
  }

  private onOpen(call: Call): void {
    const { name, link } = call.connection;
    this.pauses.delete(name);
    this.refusals.delete(name);
    for (const other of this.calls) if (other !== call && other.connection.link === link) other.end("");
    if (link === this.hubLink) this.caller.tell("connected", name);
    else this.callAgain(); // the others may be back, too
  }

  private onError(call: Call, error: unknown): string {
    const { connection, wire } = call;
    if (!(error instanceof RemoteError)) {
      this.caller.fail(error as Error);
      return "";
    }
    if (error instanceof GoneError) this.onGone(connection);
    else if (!(error instanceof StaleError)) {
      if (connection.isOpen) wire?.send(connection.refuse(error.message));
      if (this.refusals.get(connection.name) !== error.message)
        this.caller.tell("refused", connection.name, error.message);
    }
    return error.message;
  }

  private onGone(connection: Connection): void {
    const { core, caller } = this;
    const link = connection.calledLink;
    if (link === null) return;
    caller.step({ kind: "gone", link });
    const { mine, theirs } = core.state.links.get(link)!;
    if (core.hub !== null && mine === core.state.current && core.reliedOn.has(theirs))
      caller.step({ kind: "lost", addresses: [theirs] });
  }

  private onClosed(call: Call, reason: string): void {
    const { connection, wire } = call;
    this.calls.delete(call);
    wire?.close();
    const { name } = connection;
    if (connection.isOpen && connection.link === this.hubLink) this.caller.tell("disconnected", name, reason);
    if (!connection.isOpen) this.refusals.set(name, reason || "it does not answer");
    const failures = connection.isOpen ? 0 : (this.pauses.get(name)?.failures ?? 0) + 1;
    this.pauses.set(name, { until: now() + pauseAfter(failures), failures });
    this.caller.changed();
  }

  /** Send everything that may be sent. */
  flushAll(): void {
    for (const call of this.calls) this.flush(call);
  }

  private flush(call: Call): void {
    if (call.wire === null) return;
    for (const frame of call.connection.takeFrames(now())) call.wire.send(frame);
  }

  private notePresence({ connection }: Call): void {
    if (connection.link !== this.hubLink) return;
    const here = connection.present;
    if (here.size === 1 && now() - connection.openedAt < 2 * LATE) return; // the whole list is on its way
    const come = [...here].filter((name) => !this.present.has(name));
    const gone = [...this.present].filter((name) => !here.has(name));
    this.present = new Set(here);
    for (const name of gone) this.caller.tell("went", name);
    for (const name of come) this.caller.tell("came", name);
  }

  close(): void {
    for (const call of [...this.calls]) call.end("");
  }

  // Now and then

  tick(): void {
    const time = now();
    const late = time - this.tickedAt - LATE;
    this.tickedAt = time;
    if (late > 0) this.failover.excuse(late);
    for (const call of [...this.calls]) {
      if (!call.connection.isOpen) continue;
      if (late > 0) call.connection.excuse(late);
      const reason = call.connection.tick(time);
      if (reason !== null) call.end(reason);
      else this.flush(call);
    }
    this.callWanted(time);
    this.turnElsewhere(time);
  }

  /** Call on links that expect packets or have some to send. */
  private callWanted(time: number): void {
    const { core } = this;
    for (const [link, state] of core.state.links) {
      const isReliedOn = state.mine === core.state.current && core.reliedOn.has(state.theirs);
      if (state.isVoid || !(isReliedOn || state.outbox.packets.size)) continue;
      if (!this.isCalled(state.contact.name, link) && this.mayCall(state.contact.name, time))
        void this.call(state.contact.name, link);
    }
  }

  private isCalled(name: string, link: number): boolean {
    return [...this.calls].some(
      ({ connection }) => connection.link === link || (!connection.isOpen && connection.name === name),
    );
  }

  private mayCall(name: string, time: number): boolean {
    return this.places.has(name) && (this.pauses.get(name)?.until ?? 0) <= time;
  }

  /** Turn to another super peer if the own one is out of reach or the application requests it. */
  private turnElsewhere(time: number): void {
    const { core, open } = this;
    const event = this.failover.check(new Set(open.map((each) => this.theirs(each))), time);
    if (event?.kind === "lost") this.turn = 0;
    if (event !== null) this.caller.step(event);
    if (core.hub === null) return;
    if (this.failover.seeks) this.seek([...this.places.keys()][this.turn % this.places.size], time);
    else if (this.wanted !== null && this.wanted !== this.superPeer) this.moveTo(this.wanted, time);
  }

  private moveTo(name: string, time: number): void {
    const { core } = this;
    const there = this.open.find((each) => each.name === name);
    if (there === undefined) this.seek(name, time);
    else if (core.current!.mayMove(this.theirs(there))) this.caller.step({ kind: "move", link: there.link! });
  }

  /** Call a super peer to create a link to it, unless a call is in progress. */
  private seek(name: string, time: number): void {
    const isCalling = [...this.calls].some(({ connection }) => !connection.isOpen && connection.calledLink === null);
    if (isCalling || time - this.soughtAt < SEEK_PAUSE) return;
    this.soughtAt = time;
    this.turn += 1;
    void this.call(name, null);
  }

  /** A network may be back: end all pauses. */
  callAgain(): void {
    for (const pause of this.pauses.values()) pause.until = 0;
    this.callWanted(now());
  }
}

/** Milliseconds of a monotonic clock. */
export const now = (): number => performance.now();

/** How long to wait after so many failures in a row. */
export const pauseAfter = (failures: number): number =>
  Math.min(FIRST_PAUSE * 2 ** Math.min(failures, 10), LONGEST_PAUSE) * (0.5 + Math.random() / 2);
