"""Clients that log in by a certificate, on a node whose own certificate an operator has brought while it ran."""

import subprocess
from datetime import timedelta

import pytest
from couchbase.auth import CertificateAuthenticator, PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions
from settee.node import PASSWORD, USERNAME, Node, scratch

ADDRESS = "127.0.31.25"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.certificate, self.key = directory / f"{name}.pem", directory / f"{name}.key"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.certificate)

    def sign(self, name, extension):
        """(certificate, key) in a name."""
        certificate, key = (self.directory / f"{self.name}-{name}.{end}" for end in ("pem", "key"))
        request, more = self.directory / "request", self.directory / "extension"
        more.write_text(extension)
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
                "-days", "2", "-extfile", more, "-out", certificate)
        return certificate, key

    def of_user(self, name):
        return self.sign(name, "extendedKeyUsage=clientAuth\n")


@pytest.fixture(scope="module")
def node():
    with Node(ADDRESS, scratch("certificates")) as node:
        node.initialise()
        node.rest.create_bucket("secured")
        user = {"password": "never-used", "roles": "data_reader[secured],data_writer[secured]"}
        node.rest.ok("PUT", "/settings/rbac/users/local/ann", user)
        yield node


@pytest.fixture(scope="module")
def authority(node):
    """Vouches for the node and for clients. What `couchbase-cli ssl-manage` sends makes the node know it."""
    authority = Authority(node.directory, "authority")
    inbox = node.data / "inbox"
    (inbox / "CA" / "authority.pem").write_bytes(authority.certificate.read_bytes())
    node.rest.ok("POST", "/node/controller/loadTrustedCAs")
    chain, key = authority.sign("node", f"subjectAltName=IP:{ADDRESS}\nextendedKeyUsage=serverAuth\n")
    (inbox / "chain.pem").write_bytes(chain.read_bytes())
    (inbox / "pkey.key").write_bytes(key.read_bytes())
    node.rest.ok("POST", "/node/controller/reloadCertificate")
    return authority


def require(node, state):
    prefixes = '[{"path": "subject.cn", "prefix": "user-", "delimiter": ""}]'
    answer = node.rest.request("POST", "/settings/clientCertAuth", body=f'{{"state": "{state}", "prefixes": {prefixes}}}',
                               headers={"Content-Type": "application/json"})
    assert answer.status in (200, 202), answer.text


def connect(authenticator):
    cluster = Cluster.connect(f"couchbases://{ADDRESS}", ClusterOptions(authenticator))
    cluster.wait_until_ready(timedelta(seconds=10))
    return cluster


def by_certificate(authority, pair):
    certificate, key = pair
    return CertificateAuthenticator(cert_path=str(certificate), key_path=str(key),
                                    trust_store_path=str(authority.certificate))


def by_password(authority):
    return PasswordAuthenticator(USERNAME, PASSWORD, cert_path=str(authority.certificate))


def works(cluster, key):
    collection = cluster.bucket("secured").default_collection()
    collection.upsert(key, {"by": "certificate"})
    return collection.get(key).content_as[dict] == {"by": "certificate"}


@pytest.mark.parametrize("state", ["enable", "mandatory"])
def test_a_certificate_stands_for_its_user(node, authority, key, state):
    require(node, state)
    cluster = connect(by_certificate(authority, authority.of_user("user-ann")))
    try:
        assert works(cluster, key)
    finally:
        cluster.close()


def test_passwords_are_taken_unless_certificates_are_mandatory(node, authority, key):
    require(node, "enable")
    cluster = connect(by_password(authority))
    assert works(cluster, key)
    cluster.close()
    require(node, "mandatory")
    with pytest.raises(CouchbaseException):
        connect(by_password(authority))


def test_a_stranger_may_show_what_he_likes(node, authority):
    require(node, "enable")
    strange = Authority(node.directory, "strange")
    for pair in (strange.of_user("user-ann"), authority.of_user("user-nobody")):
        with pytest.raises(CouchbaseException):
            cluster = connect(by_certificate(authority, pair))
            cluster.bucket("secured").default_collection().get("anything")
