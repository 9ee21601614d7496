export { connectToApiServer, type ConnectOptions, serverVersion } from "./connect.js";
export { type ApiConnection, type RequestReport } from "./connection.js";
export { ConnectionSettingsError } from "./errors.js";
export { KubernetesSource, type KubernetesSourceOptions } from "./source.js";
export { KubernetesEventRecorder, type EventRecorderOptions } from "./event-recorder.js";
