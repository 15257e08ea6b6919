// Every page, in the order of the navigation.
import { Alerts } from './alerts.jsx';
import { Audit } from './audit.jsx';
import { Buckets } from './buckets.jsx';
import { Certificates } from './certificates.jsx';
import { Clients } from './clients.jsx';
import { Collections } from './collections.jsx';
import { Documents } from './documents.jsx';
import { Latency } from './latency.jsx';
import { Logs } from './logs.jsx';
import { Overview } from './overview.jsx';
import { Servers } from './servers.jsx';
import { Settings } from './settings.jsx';
import { Users } from './users.jsx';
import { Views } from './views.jsx';

export const pages = [
  { path: '', title: 'Overview', Show: Overview },
  { path: 'servers', title: 'Servers', Show: Servers },
  { path: 'buckets', title: 'Buckets', Show: Buckets },
  { path: 'alerts', title: 'Alerts', Show: Alerts },
  { path: 'latency', title: 'Latency', Show: Latency },
  { path: 'clients', title: 'Clients', Show: Clients },
  { path: 'documents', title: 'Documents', Show: Documents },
  { path: 'collections', title: 'Collections', Show: Collections },
  { path: 'views', title: 'Views', Show: Views },
  { path: 'users', title: 'Users', Show: Users },
  { path: 'certificates', title: 'Certificates', Show: Certificates },
  { path: 'settings', title: 'Settings', Show: Settings },
  { path: 'audit', title: 'Audit', Show: Audit },
  { path: 'logs', title: 'Logs', Show: Logs },
];
