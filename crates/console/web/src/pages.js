// Every page, in the order of the navigation.
import { Buckets } from './buckets.jsx';
import { Overview } from './overview.jsx';

export const pages = [
  { path: '', title: 'Overview', Show: Overview },
  { path: 'buckets', title: 'Buckets', Show: Buckets },
];
