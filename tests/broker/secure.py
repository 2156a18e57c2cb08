"""A broker that wants TLS, a login or a client's certificate, with certificates made on the spot.

`openssl` makes an authority, another one that nobody trusts, and certificates for the broker and a
client: a few milliseconds each. Every way of connecting has a listener of its own, so one broker
serves all tests.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.broker.broker import Broker, free_ports

USER, PASSWORD = "streamnb-tests", "marked password of the test broker"
KEY_PASSWORD = "marked password of the key"

# Each listener's name, and the protocol that it speaks.
LISTENERS = {
    "TLS": "SSL",
    "CUT": "SSL",  # clients are told to find it at another port
    "NAMED": "SSL",  # its certificate is for another host
    "MUTUAL": "SSL",  # it asks for the client's certificate
    "LOGIN": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
}


class Certificates:
    """The files of two authorities and of all certificates, made in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        for name in ("authority", "stranger"):
            self._make(name)
        self._make("broker", "IP:127.0.0.1")
        self._make("elsewhere", "DNS:elsewhere.example")
        self._make("client", "DNS:client.example")
        self.authority, self.stranger = folder / "authority.pem", folder / "stranger.pem"
        self.client = folder / "client.pem"
        self.client_key = folder / "client.key"
        self.locked_key = folder / "client-locked.key"
        self._openssl(
            *("pkcs8", "-topk8", "-in", "client.key", "-out", "client-locked.key"),
            *("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}"),
        )

    def chain(self, name: str) -> Path:
        """Return a file with a key and its certificate, as the broker's keystore is written."""
        chain = self._folder / f"{name}-chain.pem"
        parts = [self._folder / f"{name}.key", self._folder / f"{name}.pem"]
        chain.write_text("".join(part.read_text() for part in parts))
        return chain

    def _make(self, name: str, alternative: str | None = None) -> None:
        """Make a key and a certificate: an authority's own, or one that the authority signs."""
        signed = ["-CA", "authority.pem", "-CAkey", "authority.key"] if alternative else []
        if alternative is not None:
            signed += ["-addext", f"subjectAltName={alternative}"]
            signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
        self._openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}", *signed),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
        )

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


class SecureBroker(Broker):
    """A broker with a listener for each way of `LISTENERS`, beside the plain one."""

    def __init__(self, folder: Path, **properties: str) -> None:
        super().__init__(folder, **properties)
        self.certificates = Certificates(folder / "certificates")
        self.protocols |= LISTENERS
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.advertised = {"CUT": free_ports(1)[0]}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.format_options += ["-S", f'{mechanism}=[name={USER},password="{PASSWORD}"]']
        stores = {"NAMED": self.certificates.chain("elsewhere")}
        broker = self.certificates.chain("broker")
        for name, protocol in LISTENERS.items():
            own = f"listener.name.{name.lower()}"
            if protocol.endswith("SSL"):
                self._properties |= {
                    f"{own}.ssl.keystore.type": "PEM",
                    f"{own}.ssl.keystore.location": str(stores.get(name, broker)),
                    f"{own}.ssl.truststore.type": "PEM",
                    f"{own}.ssl.truststore.location": str(self.certificates.authority),
                }
            if protocol.startswith("SASL"):
                modules = "org.apache.kafka.common.security"
                scram = f"{modules}.scram.ScramLoginModule required;"
                plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
                self._properties |= {
                    f"{own}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                    f"{own}.plain.sasl.jaas.config": plain,
                    f"{own}.scram-sha-256.sasl.jaas.config": scram,
                    f"{own}.scram-sha-512.sasl.jaas.config": scram,
                }
        self._properties["listener.name.mutual.ssl.client.auth"] = "required"

    def at(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"127.0.0.1:{self.ports[listener]}"
