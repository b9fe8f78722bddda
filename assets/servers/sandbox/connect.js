// Node.js before 22.21 knows no proxy variables: connections to granted hosts go to the relay's ports
// for them. TOOLMILL_HOSTS: {"host:port": port}.
const { Socket } = require("net");

const ports = JSON.parse(process.env.TOOLMILL_HOSTS || "{}");
const connect = Socket.prototype.connect;

Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  if (options && typeof options === "object" && !options.path) {
    const host = String(options.host || "localhost").toLowerCase();
    const port = ports[`${host}:${options.port}`];
    if (port) {
      // What the certificate is held against stays the name.
      options.servername = options.servername || host;
      options.host = "127.0.0.1";
      options.port = port;
    }
  }
  return connect.apply(this, args);
};
