"use strict";
// Moves the wall clock of one Node process, by CLOCK_OFFSET_S seconds (see assets/servers/probe/consistency.py).
// A Proxy keeps `Date()` callable, `instanceof` true and every other member as it is.
const offset = Number(process.env.CLOCK_OFFSET_S) * 1000;
const RealDate = Date;
const now = () => RealDate.now() + offset;
globalThis.Date = new Proxy(RealDate, {
  construct: (target, args, made) => Reflect.construct(target, args.length ? args : [now()], made),
  apply: () => new RealDate(now()).toString(),
  get: (target, name) => (name === "now" ? now : Reflect.get(target, name)),
});
RealDate.prototype.constructor = globalThis.Date;
